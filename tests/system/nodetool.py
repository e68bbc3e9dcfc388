"""nodetool on the Cassandra node of a local instance, which runs without JMX: jcmd starts the agent for the duration of a block."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from starling_common.testing import free_port
from starling_local.instance import Instance
from starling_local.java import Java, find_java
from starling_local.runtime import runtime_jars
from starling_local.stack.parts.jvm_cassandra import MODULE_OPTIONS

_HOST: Final = "127.0.0.1"


class Nodetool:
    """The tool of the node's own release."""

    def __init__(self, java: Java, port: int, home: Path) -> None:
        """`home`: where the tool keeps the history of its commands."""
        jars = ":".join(str(jar) for jar in runtime_jars("cassandra"))
        # As Cassandra's own script: newer Java refuses the address of the agent otherwise.
        options = ("-Dcom.sun.jndi.rmiURLParsing=legacy", f"-Duser.home={home}")
        self._command = (
            java.command,
            *MODULE_OPTIONS,
            *options,
            "-cp",
            jars,
            "org.apache.cassandra.tools.NodeTool",
            "-h",
            _HOST,
            "-p",
            str(port),
        )

    def __call__(self, *words: str) -> str:
        """Run a command. Raises: AssertionError with its output."""
        return _run(*self._command, *words)


@contextmanager
def nodetool(instance: Instance, home: Path) -> Iterator[Nodetool]:
    """Yield nodetool for a running instance. Needs a JDK: a JRE has no jcmd."""
    report = instance.report()
    assert report is not None
    with nodetool_of(next(part.pid for part in report.parts if part.name == "cassandra"), home) as found:
        yield found


@contextmanager
def nodetool_of(pid: int | None, home: Path) -> Iterator[Nodetool]:
    """Yield nodetool for the node with this process id. Needs a JDK."""
    java, port = find_java(), free_port()
    jcmd = java.home / "bin/jcmd"
    assert jcmd.exists(), f"{jcmd} is missing: install a JDK 17 (Debian: openjdk-17-jdk-headless)"
    agent = {"host": _HOST, "port": port, "rmi.port": port, "authenticate": "false", "ssl": "false"}
    _run(str(jcmd), str(pid), "ManagementAgent.start", *(f"jmxremote.{name}={value}" for name, value in agent.items()))
    try:
        yield Nodetool(java, port, home)
    finally:
        _run(str(jcmd), str(pid), "ManagementAgent.stop")


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, f"{' '.join(command[-6:])}: {done.stdout}{done.stderr}"
    return done.stdout
