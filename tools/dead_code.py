"""Refuses code that no code uses, by vulture: `python -m tools.dead_code`.

The product is searched alone, so that a test does not keep code alive; then tests and benchmarks are searched with it.
`ALLOWED` lists what vulture cannot know, each entry with its reason. An entry that is no longer needed is refused too.
"""

import ast
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from vulture import Vulture

ROOT: Final = Path(__file__).parent.parent

DECORATORS: Final = {
    "@*.command": "typer calls the function",
    "@*.get": "FastAPI calls the function",
    "@*.put": "FastAPI calls the function",
    "@*.post": "FastAPI calls the function",
    "@*.delete": "FastAPI calls the function",
    "@field_validator": "pydantic calls the method",
    "@model_validator": "pydantic calls the method",
    "@pytest.fixture": "pytest calls the function",
}
"""Decorator, as a pattern -> the reason why its functions are used."""

CALLBACKS: Final = {
    "model_config": "pydantic reads it",
    "do_[A-Z]*": "http.server calls it",
    "handle_*tag": "html.parser calls it",
    "log_message": "http.server calls it",
    "close_connection": "http.server reads it",
    "daemon_threads": "socketserver reads it",
    "protocol_version": "http.server reads it",
    "pytest_*": "pytest calls it",
    "pytestmark": "pytest reads it",
}
"""Name, as a pattern -> the reason why it is used wherever it is defined."""

_FIELD: Final = "a field of an answer, which FastAPI serialises"
_ADDRESS: Final = "a fixture or an address for tests"
_ROW: Final = "the answer contains every column of the row"
_DRIVER: Final = "the driver of Cassandra reads it"
_FAUST: Final = "Faust calls or reads it"
_SPARK: Final = "Spark calls it, and passes arguments by this name"
_RECORD: Final = "a field that is stored for the operator"

ALLOWED: Final[Mapping[str, str]] = {
    # driver and framework objects
    "bulk_states.py:userKey": "protobuf serialises the field",
    "bulk_states.py:stateName": "protobuf serialises the field",
    "fence.py:implements": "Py4J reads it",
    "test_node.py:verify_mode": "ssl reads it",
    "conftest.py:dont_write_bytecode": "Python reads it",
    "reports.py:zero": _SPARK,
    "reports.py:addInPlace": _SPARK,
    "spark_state.py:init": _SPARK,
    "spark_state.py:timerValues": _SPARK,
    "test_commands.py:whitespace_split": "shlex reads it",
    "database.py:consistency_level": _DRIVER,
    "database.py:serial_consistency_level": _DRIVER,
    "database.py:_timer": "breaks a reference cycle of the driver",
    "audit.py:actor_name": _ROW,
    "audit.py:revision_before": _ROW,
    "audit.py:revision_after": _ROW,
    "logs.py:handlers": "logging reads it",
    "logs.py:excepthook": "the interpreter calls it",
    "probes.py:propagate": "logging reads it",
    "common.py:overflow": "rich reads it",
    "pipeline.py:no_wrap": "rich reads it",
    "pipeline.py:justify": "rich reads it",
    "coverage_gate.py:justify": "rich reads it",
    "native_wheel.py:NativeWheel": "the build hook of the wheel, named in pyproject.toml",
    "native_wheel.py:initialize": "hatchling calls it",
    "command.py:demo": "an entry point of the command, named in pyproject.toml",
    "connections.py:_pool": "httpx reads it",
    "receivers.py:connection_made": "asyncio calls it",
    "receivers.py:data_received": "asyncio calls it",
    "latencies.py:handle_DATA": "aiosmtpd calls it",
    "mailbox.py:handle_DATA": "aiosmtpd calls it",
    "sides.py:handle_RCPT": "aiosmtpd calls it",
    "sides.py:handle_DATA": "aiosmtpd calls it",
    "smtp_sink.py:handle_EHLO": "aiosmtpd calls it",
    "smtp_sink.py:handle_RCPT": "aiosmtpd calls it",
    "smtp_sink.py:handle_DATA": "aiosmtpd calls it",
    "smtp_sink.py:host_name": "aiosmtpd reads it",
    "sender.py:took_ms": "a field of the response",
    "fetching.py:extraction_filter": "tarfile reads it",
    "sandbox.py:intercepted_binops": "Jinja reads it",
    "sandbox.py:intercepted_unops": "Jinja reads it",
    "sandbox.py:call_binop": "Jinja calls it",
    "sandbox.py:call_unop": "Jinja calls it",
    "testing.py:key_of": "for tests of the services behind ingest",
    "operands.py:log_errors": "re2 reads it",
    "operands.py:max_mem": "re2 reads it",
    "process.py:total_tokens": "anyio reads it",
    "test_api_app.py:total_tokens": "anyio reads it",
    "liveness.py:makefile": "http.client calls it",
    "paths.py:regex": "starlette reads it",
    "paths.py:to_string": "starlette calls it",
    "assignor.py:on_assignment": "aiokafka calls it",
    "transport.py:_create_worker_consumer": _FAUST,
    "transport.py:_group_instance_id": _FAUST,
    "transport.py:_consumer_record": _FAUST,
    "transport.py:_new_consumer_thread": _FAUST,
    "transport.py:getmany": _FAUST,
    "transform.py:init": _SPARK,
    "transform.py:handleInitialState": _SPARK,
    "transform.py:handleInputRows": _SPARK,
    "transform.py:timerValues": _SPARK,
    "refused.py:zero": _SPARK,
    "refused.py:addInPlace": _SPARK,
    "assigned_tasks.py:_following": "asyncio keeps weak references to tasks only",
    # values that are read as a whole
    "enrich.py:brand": "read as a tuple and as a dictionary, with the other fields",
    "manifest.py:made_at_ms": _RECORD,
    "sending.py:get_bearer": "the transport of OpenLineage calls it",
    "models.py:ended_at": _FIELD,
    "models.py:last_run": _FIELD,
    "models.py:next_run_at": _FIELD,
    "models.py:event_topic": _FIELD,
    "models.py:next_cursor": _FIELD,
    "models.py:revoked_at": _FIELD,
    "models.py:actor_name": _FIELD,
    "models.py:revision_before": _FIELD,
    "models.py:revision_after": _FIELD,
    "auth.py:APPROVER": "a role of settings and bodies, which no operation needs yet",
    "auth.py:MARKETER": "another name of a role in settings and bodies",
    "models.py:window_start": _FIELD,
    "models.py:clicked": _FIELD,
    "models.py:bounced": _FIELD,
    "models.py:complained": _FIELD,
    "models.py:unsubscribed": _FIELD,
    "models.py:held_out_converted": _FIELD,
    "models.py:relative": _FIELD,
    "models.py:inconclusive": _FIELD,
    "lift.py:relative": "a field of an answer, which is built from all fields",
    "lift.py:inconclusive": "a field of an answer, which is built from all fields",
    "models.py:window_end": _FIELD,
    "models.py:records_refused": _FIELD,
    "models.py:success": _FIELD,
    "models.py:used_by": _FIELD,
    "models.py:updated_at": _FIELD,
    "models.py:between_ago": _FIELD,
    "models.py:disabled_because": _FIELD,
    "models.py:segment_name": _FIELD,
    "models.py:took_ms": _FIELD,
    "settings.py:SASL_PLAINTEXT": "a value of a setting",
    "settings.py:SASL_SSL": "a value of a setting",
    "settings.py:SSL": "a value of a setting",
    "models.py:verdict": _FIELD,  # vocabulary: verdict: a field of the contract
    # for tests
    "testing.py:eventually": _ADDRESS,
    "testing.py:own_keyspace": _ADDRESS,
    "testing.py:drop_own_keyspaces": _ADDRESS,
    "testing.py:cassandra_host": _ADDRESS,
    "testing.py:cassandra_port": _ADDRESS,
    "postgres.py:postgres": _ADDRESS,
    "postgres.py:restart": _ADDRESS,
    "opensearch.py:opensearch": _ADDRESS,
    "nessie.py:nessie": _ADDRESS,
    "spark_cluster.py:spark_cluster": _ADDRESS,
    "spark_cluster.py:running_executors": _ADDRESS,
    "testing.py:embedded": _ADDRESS,
    "testing.py:local_codecs": _ADDRESS,
    "testing.py:put_aside": "the test driver of a stateful service, for the authors of services",
    "testing.py:take_outputs": "the test driver of a stateful service, for the authors of services",
    "testing.py:restart": "the test driver of a stateful service, for the authors of services",
    "validation.py:CODES": "the codes of the contract; a test compares them with the language",
    # tests
    "conftest.py:_split_scope": "pytest-xdist calls it",
    **dict.fromkeys(
        (
            "oracle.py:_segment_holds", "oracle.py:_everyone_holds", "oracle.py:_list_holds", "oracle.py:_bucket_holds",
            "oracle.py:_account_holds", "oracle.py:_trait_holds", "oracle.py:_first_time_holds", "oracle.py:_regularly_holds",
            "oracle.py:_sequence_holds", "oracle.py:_event_holds", "oracle.py:_measure_holds",
        ),
        "called by the kind of the condition, through getattr",
    ),
}  # fmt: skip
"""`file:name` -> the reason why it stays. The directory is left out: a module that moves keeps its entry."""


class Unused(NamedTuple):
    """A definition without a use."""

    path: str
    line: int
    name: str

    @property
    def entry(self) -> str:
        """Its key in `ALLOWED`."""
        return f"{Path(self.path).name}:{self.name}"

    def __str__(self) -> str:
        """As a compiler reports: place and cure."""
        cure = f"remove it, or list {self.entry!r} in tools/dead_code.py with the reason"
        return f"{self.path}:{self.line}: {self.name!r} is not used: {cure}"


def sources(root: Path = ROOT) -> list[str]:
    """Return the Python files of the repository, relative to it, without generated ones."""
    listed = subprocess.run(["git", "ls-files", "-z", "*.py"], cwd=root, check=True, capture_output=True, text=True).stdout
    return [path for path in listed.split("\0") if path and not path.endswith("_pb2.py") and (root / path).exists()]


def unused(paths: Iterable[str], root: Path = ROOT) -> Iterator[Unused]:
    """Yield the definitions that no file of `paths` uses."""
    search = Vulture(ignore_names=list(CALLBACKS), ignore_decorators=list(DECORATORS))
    for path in paths:
        text = (root / path).read_text()
        search.scan(text, filename=Path(path))
        yield from (Unused(path, line, name) for line, name in unused_private(text))
    for item in search.get_unused_code():
        yield Unused(item.filename.as_posix(), item.first_lineno, str(item.name))


def unused_private(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of the private constants of a module that it does not use; vulture ignores names with an underscore."""
    tree = ast.parse(text)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    for statement in tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        for target in targets:
            if (
                isinstance(target, ast.Name)
                and target.id.startswith("_")
                and not target.id.startswith("__")
                and target.id not in used
            ):
                yield statement.lineno, target.id


def report(found: Collection[Unused], allowed: Mapping[str, str]) -> list[str]:
    """Return a line for each definition that is not allowed, then one for each entry that is not needed."""
    refused = [str(one) for one in sorted(found) if one.entry not in allowed]
    stale = sorted(allowed.keys() - {one.entry for one in found})
    return refused + [f"tools/dead_code.py: {entry!r} is used or gone: remove the entry" for entry in stale]


def main() -> int:
    """Exit code 1: at least one definition is unused and not allowed, or an allowed one is used."""
    every = sources()
    product = [path for path in every if not path.startswith(("tests/", "benchmarks/"))]
    lines = report({*unused(product), *unused(every)}, ALLOWED)
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
