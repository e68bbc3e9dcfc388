"""Pure core: the services as parts, configured by environment variables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from starling_local.instance import Options
from starling_local.ports import HOST, Ports
from starling_local.stack.parts.jvm_registry import registry_url
from starling_local.stack.parts.part import ExitProbe, HttpProbe, Part

WRITE_KEY = "local-write-key"
API_TOKEN = "local-admin-token"  # noqa: S105 - a documented constant of the local stack
WORKSPACE = "default"
STORES = ("kafka", "cassandra", "registry")
BACKFILL_FROM_RECORDS = 20_000
"""The segmenter reads as many records of a partition in about a second; a shorter history does not justify a Spark run."""


@dataclass(frozen=True, slots=True)
class Host:
    """Paths on this machine that the services need.

    Shape: `spark_jars` is the class path of pyspark, `iceberg_jars` the additional jars of the lake, `jdbc_jars` those of
           the databases that imports read; empty if no started part needs them. `job_nice` is the niceness of Spark's jobs.
    """

    python: str
    java_home: Path
    spark_jars: tuple[Path, ...] = ()
    iceberg_jars: tuple[Path, ...] = ()
    jdbc_jars: tuple[Path, ...] = ()
    job_nice: int = 10


def service_parts(data_dir: Path, options: Options, host: Host) -> list[Part]:
    """Return the deploy step and every service, in the order in which an event passes them."""
    ports = options.ports
    shared = shared_env(options)
    parts = [
        _deploy(shared, host),
        _single("ingest", data_dir, ports, shared, host),
        *_workers("normalizer", data_dir, options, shared, host),
        *_workers("segmenter", data_dir, options, shared | _clock(options), host),
        *_workers("projector", data_dir, options, shared | _history(options), host),
        _single("api", data_dir, ports, shared | _history(options) | _keys(data_dir) | _jobs_of_api(data_dir, options, host), host),
        *_workers("delivery", data_dir, options, shared | _keys(data_dir), host),
        _feeds(data_dir, options.ports, shared, host),
        *(_campaigns(data_dir, options, shared, host) if options.campaigns else ()),
    ]
    jobs = [("spark", "starling_spark.jobs.profiles"), ("lake", "starling_spark.jobs.lake"), ("views", "starling_spark.jobs.views")]
    wanted = {"spark": options.spark, "lake": options.lake, "views": options.views}
    return [*parts, *(_spark(name, module, data_dir, options, shared, host) for name, module in jobs if wanted[name])]


def _clock(options: Options) -> dict[str, str]:
    """Return the variables that keep the segmenter from publishing its clock, which only the messenger reads."""
    return {} if options.campaigns else {"STARLING_PUBLISH_CLOCK": "false"}


def _history(options: Options) -> dict[str, str]:
    """Return the lifetime of the events of users, which the projector writes and the API reads."""
    return {"STARLING_HISTORY_DAYS": str(options.history_days)}


def _campaigns(data_dir: Path, options: Options, shared: dict[str, str], host: Host) -> list[Part]:
    """Return the messenger, the broadcaster, the processes of the channels of campaigns, the tracker, and audience sync."""
    links = {"STARLING_LINKS__KEYS_FILE": str(keys_file(data_dir))}
    tracker = f"http://{options.ports.address('tracker')}"
    email = {"STARLING_CHANNEL": "email", "STARLING_EMAIL__TRACKER_URL": tracker}
    return [
        *_workers("messenger", data_dir, options, shared, host),
        _single("broadcaster", data_dir, options.ports, shared, host),
        *_workers("delivery-email", data_dir, options, shared | email | links | _keys(data_dir), host),
        _single("tracker", data_dir, options.ports, shared | links | _keys(data_dir) | {"STARLING_PUBLIC_URL": tracker}, host),
        _single("audience", data_dir, options.ports, shared | _keys(data_dir), host),
    ]


def _feeds(data_dir: Path, ports: Ports, shared: dict[str, str], host: Host) -> Part:
    """Return the process of the feeds to Slack, Teams and topics of customers."""
    name = "delivery-feeds"
    env = {**shared, **_keys(data_dir), "STARLING_CHANNEL": "feeds"}
    return _service(name, "starling_delivery", data_dir, ports.fixed(name), env, host)


def write_key_of(workspace: str) -> str:
    """Return the write key of a workspace of the local stack."""
    return WRITE_KEY if workspace == WORKSPACE else f"{workspace}-write-key"


def api_token_of(workspace: str) -> str:
    """Return the API token of a workspace of the local stack."""
    return API_TOKEN if workspace == WORKSPACE else f"{workspace}-admin-token"


def shared_env(options: Options) -> dict[str, str]:
    """Return the environment variables of every service."""
    ports = options.ports
    workspaces = dict.fromkeys((WORKSPACE, *options.workspaces))
    return {
        "STARLING_KAFKA__BROKERS": ports.address("kafka"),
        "STARLING_REGISTRY__URL": registry_url(ports),
        "STARLING_CASSANDRA__CONTACT_POINTS": HOST,
        "STARLING_CASSANDRA__PORT": str(ports.fixed("cassandra")),
        "STARLING_CASSANDRA__KEYSPACE": "starling",
        "STARLING_CLOCK": options.clock,
        "STARLING_HTTP__HOST": HOST,
        "STARLING_WRITE_KEYS": ",".join(f"{write_key_of(name)}={name}" for name in workspaces),
        "STARLING_TOKENS": ",".join(f"{api_token_of(name)}=admin:{name}" for name in workspaces),
        "STARLING_INGEST_URL": f"http://{ports.address('ingest')}",
        "STARLING_API_URL": f"http://{ports.address('api')}",
        # A webhook receiver under development runs on this machine as well.
        "STARLING_ALLOW_PRIVATE_ADDRESSES": "true",
        # One broker and one node of Cassandra.
        "STARLING_ACKNOWLEDGE_SINGLE_COPY": "true",
    }


def keys_file(data_dir: Path) -> Path:
    """Return the path of the keys that encrypt secrets."""
    return data_dir / "secrets.keys"


def _keys(data_dir: Path) -> dict[str, str]:
    """Return the environment variable of the services that encrypt or decrypt secrets. No other one has the keys."""
    return {"STARLING_SECRETS__KEYS_FILE": str(keys_file(data_dir))}


def imports_dir(data_dir: Path) -> Path:
    """Return the directory below which an import may read files; `starling import run` links or copies a file into it."""
    return data_dir / "imports" / "files"


def _jobs_of_api(data_dir: Path, options: Options, host: Host) -> dict[str, str]:
    """Return the environment variables for the jobs that the API starts: imports, SQL traits with a lake, and the backfill."""
    workspaces = dict.fromkeys((WORKSPACE, *options.workspaces))
    imports = {
        "STARLING_IMPORTS_API_URL": f"http://{options.ports.address('api')}",
        "STARLING_IMPORTS_API_TOKENS": ",".join(f"{api_token_of(name)}={name}" for name in workspaces),
        "STARLING_IMPORTS_RUNNER": "process",
        "STARLING_IMPORTS_ROOTS": imports_dir(data_dir).absolute().as_uri(),
        "STARLING_IMPORTS_INGEST_URL": f"http://{options.ports.address('ingest')}",
        "STARLING_IMPORTS_WRITE_KEYS": shared_env(options)["STARLING_WRITE_KEYS"],
        "STARLING_SPARK_JARS": ",".join(map(str, host.jdbc_jars)),
        "STARLING_SPARK_DRIVER_MEMORY": "1g",
        "JAVA_HOME": str(host.java_home),
        # Spark starts its Python workers with the first `python3` of the PATH by default.
        "PYSPARK_PYTHON": host.python,
        "PYSPARK_DRIVER_PYTHON": host.python,
    }
    lake = _spark_env(data_dir, (*host.spark_jars, *host.iceberg_jars, *host.jdbc_jars), host) if options.lake else {}
    sql = {"STARLING_SQL_TRAITS_RUNNER": "process"} if options.lake else {}
    backfill = {"STARLING_BACKFILL_FROM_RECORDS": str(BACKFILL_FROM_RECORDS), "STARLING_BACKFILL_RUNNER": "process"}
    return imports | lake | sql | (backfill if options.backfill else {})


def _deploy(shared: Mapping[str, str], host: Host) -> Part:
    return Part(
        name="deploy",
        command=(host.python, "-m", "starling_common.deploy"),
        probe=ExitProbe(),
        depends_on=STORES,
        env=shared,
    )


def _single(name: str, data_dir: Path, ports: Ports, shared: Mapping[str, str], host: Host) -> Part:
    return _service(name, f"starling_{name}", data_dir, ports.fixed(name), {**shared}, host)


def _workers(name: str, data_dir: Path, options: Options, shared: Mapping[str, str], host: Host) -> list[Part]:
    return [
        _service(f"{name}-{i}", f"starling_{name.partition('-')[0]}", data_dir, options.ports.worker(name, i), {**shared}, host)
        for i in range(options.workers(name))
    ]


def _spark(name: str, module: str, data_dir: Path, options: Options, shared: Mapping[str, str], host: Host) -> Part:
    has_lake = name == "lake" or (name == "spark" and options.lake)
    env = {**shared, **_spark_env(data_dir, (*host.spark_jars, *(host.iceberg_jars if has_lake else ())), host)}
    env["JAVA_TOOL_OPTIONS"] = "-XX:TieredStopAtLevel=1"  # the optimising compiler takes a core from all others at first
    if not has_lake:
        env["STARLING_LAKE_WAREHOUSE"] = ""
    part = _service(name, module, data_dir, options.ports.worker(name, 0), env, host)
    # A micro-batch occupies every processor of one machine; memberships come first.
    return replace(part, command=("nice", "-n", str(host.job_nice), *part.command))


def job_env(name: str, data_dir: Path, options: Options, host: Host) -> dict[str, str]:
    """Return the environment variables of a Spark job that runs once; it serves no HTTP."""
    own = {"STARLING_INSTANCE_ID": name, "STARLING_HTTP__PORT": str(options.ports.worker("spark", 0))}
    jars = (*host.spark_jars, *host.iceberg_jars)
    env = {**shared_env(options), **_spark_env(data_dir, jars, host), **own}
    return env if options.lake else env | {"STARLING_LAKE_WAREHOUSE": ""}


def _spark_env(data_dir: Path, jars: Sequence[Path], host: Host) -> dict[str, str]:
    return {
        "STARLING_CHECKPOINT_DIR": str(data_dir / "spark" / "checkpoints"),
        "STARLING_LAKE_WAREHOUSE": str(data_dir / "spark" / "lake"),
        "STARLING_REPLAY_DIR": str(data_dir / "spark" / "replays"),
        "STARLING_SPARK_JARS": ",".join(str(jar) for jar in jars),
        "STARLING_SPARK_DRIVER_MEMORY": "1g",
        # Spark starts its Python workers with the first `python3` of the PATH by default.
        "PYSPARK_PYTHON": host.python,
        "PYSPARK_DRIVER_PYTHON": host.python,
        "JAVA_HOME": str(host.java_home),
    }


def _service(name: str, module: str, data_dir: Path, port: int, env: dict[str, str], host: Host) -> Part:
    state = data_dir / "state" / name
    own = {"STARLING_HTTP__PORT": str(port), "STARLING_INSTANCE_ID": name, "STARLING_STATE_DIR": str(state)}
    return Part(
        name=name,
        command=(host.python, "-m", module),
        probe=HttpProbe(f"http://{HOST}:{port}/readyz"),
        alive=HttpProbe(f"http://{HOST}:{port}/healthz"),
        depends_on=("deploy",),
        env={**env, **own},
        ports={name: port},
        directories=(state,),
        grace_seconds=30.0,
    )
