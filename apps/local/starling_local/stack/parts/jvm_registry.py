"""Pure core: the schema registry as a part.

The registry stores its schemas in an H2 file and not in Kafka topics. It therefore starts in parallel with the broker, and
answers while the broker is down, which the fault tests need.
"""

from pathlib import Path

from starling_local.ports import HOST, Ports
from starling_local.stack.parts.part import HttpProbe, Part


def registry_part(data_dir: Path, runner: Path, ports: Ports, java: str) -> Part:
    """Return the Apicurio registry; clients use its Confluent-compatible interface."""
    home = data_dir / "registry"
    return Part(
        name="registry",
        # The registry has few requests: its start takes 13 s of processor time with the optimising compiler, 7 s without.
        command=(
            *(java, "-Xmx256m", "-XX:MaxMetaspaceSize=192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *("-jar", str(runner)),
        ),
        probe=HttpProbe(f"http://{ports.address('registry')}/health/ready"),
        alive=HttpProbe(f"http://{ports.address('registry')}/health/live"),
        env={
            "QUARKUS_HTTP_HOST": HOST,
            "QUARKUS_HTTP_PORT": str(ports.fixed("registry")),
            "QUARKUS_HTTP_ACCESS_LOG_ENABLED": "false",
            "APICURIO_STORAGE_KIND": "sql",
            "APICURIO_STORAGE_SQL_KIND": "h2",
            # By default H2 writes a commit to its file half a second later: a kill would lose schemas that were acknowledged.
            "APICURIO_DATASOURCE_URL": f"jdbc:h2:file:{home / 'registry'};WRITE_DELAY=0",
            "APICURIO_DATASOURCE_USERNAME": "sa",
            "APICURIO_DATASOURCE_PASSWORD": "sa",
            # By default the start opens 20 connections, and fails if they take longer than 5 s on a busy machine.
            "APICURIO_DATASOURCE_JDBC_INITIAL_SIZE": "1",
            "APICURIO_DATASOURCE_JDBC_MIN_SIZE": "1",
            "APICURIO_DATASOURCE_JDBC_MAX_SIZE": "20",
            "QUARKUS_DATASOURCE_H2_JDBC_ACQUISITION_TIMEOUT": "60",
        },
        ports={"registry": ports.fixed("registry")},
        directories=(home,),
    )


def registry_url(ports: Ports) -> str:
    """Return the address for clients of the registry."""
    return f"http://{ports.address('registry')}/apis/ccompat/v7"
