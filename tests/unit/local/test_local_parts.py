from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from starling_common.security.sealing import parse_keys
from starling_local.instance import Options
from starling_local.java import Java
from starling_local.ports import Ports
from starling_local.stack import wiring
from starling_local.stack.parts.jvm_cassandra import cassandra_part, render_yaml
from starling_local.stack.parts.jvm_kafka import kafka_part, render_properties
from starling_local.stack.parts.jvm_registry import registry_part
from starling_local.stack.parts.part import ExitProbe, Part, PlanError, start_order, with_dependencies
from starling_local.stack.parts.services import Host, imports_dir, keys_file, service_parts
from starling_local.stack.wiring import needed_bundles, planned_parts
from starling_spark.jobs.imports.settings import api_tokens, write_keys

PORTS = Ports(21_000)
HOME = Path("/data")


def options(**changed: object) -> Options:
    return Options(**({"instance_id": "i", "port_base": 21_000} | changed))  # type: ignore[arg-type]


def part(name: str, *needs: str) -> Part:
    return Part(name=name, command=("true",), probe=ExitProbe(), depends_on=needs)


def names(parts: list[Part]) -> list[str]:
    return [one.name for one in parts]


def properties() -> dict[str, str]:
    lines = render_properties(HOME / "kafka", PORTS).splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_the_broker_listens_on_its_own_ports_of_the_loopback_address_only() -> None:
    found = properties()
    assert found["listeners"] == "PLAINTEXT://127.0.0.1:21003,CONTROLLER://127.0.0.1:21004"
    assert found["advertised.listeners"] == "PLAINTEXT://127.0.0.1:21003"
    assert found["controller.quorum.voters"] == "1@127.0.0.1:21004"
    assert found["log.dirs"] == "/data/kafka"


def test_the_broker_creates_no_topic_automatically_and_works_alone() -> None:
    found = properties()
    assert found["auto.create.topics.enable"] == "false"
    assert found["offsets.topic.replication.factor"] == "1"
    assert found["transaction.state.log.replication.factor"] == "1"
    assert found["transaction.state.log.min.isr"] == "1"
    assert found["group.initial.rebalance.delay.ms"] == "0"


def test_memory_of_every_jvm_is_capped() -> None:
    assert "-Xmx512m" in kafka_part(HOME, HOME, PORTS, "java").command
    assert "-Xmx1g" in cassandra_part(HOME, HOME, PORTS, "java").command
    assert "-Xmx256m" in registry_part(HOME, HOME / "runner.jar", PORTS, "java").command


def test_two_nodes_on_one_address_share_no_port() -> None:
    one, other = (render_yaml(HOME, Ports(base)) for base in (21_000, 21_100))
    assert "native_transport_port: 21005" in one
    assert "storage_port: 21006" in one
    assert '"127.0.0.1:21006"' in one
    assert not {line for line in one.splitlines() if "port" in line} & set(other.splitlines())


def test_services_come_after_the_deploy_step_and_that_after_the_stores() -> None:
    order = names(planned_parts(HOME, options()))
    assert max(order.index(store) for store in ("kafka", "cassandra", "registry")) < order.index("deploy")
    assert order.index("deploy") < min(order.index(name) for name in ("ingest", "normalizer-0", "segmenter-0", "api", "spark"))


def test_every_workspace_has_a_write_key_and_a_token() -> None:
    found = service_parts(HOME, options(workspaces=("shop",)), Host("python", HOME))
    assert {one.env["STARLING_WRITE_KEYS"] for one in found} == {"local-write-key=default,shop-write-key=shop"}
    assert {one.env["STARLING_TOKENS"] for one in found} == {"local-admin-token=admin:default,shop-admin-token=admin:shop"}


def test_the_api_and_delivery_alone_read_the_keys_of_secrets() -> None:
    found = service_parts(HOME, options(), Host("python", HOME))
    readers = {one.name: one.env["STARLING_SECRETS__KEYS_FILE"] for one in found if "STARLING_SECRETS__KEYS_FILE" in one.env}
    assert readers == dict.fromkeys(("api", "delivery-0", "delivery-feeds"), str(HOME / "secrets.keys"))


def test_the_first_start_makes_a_key_that_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "fetch", lambda _bundle, _directory: tmp_path)
    texts = set()
    for _ in range(2):
        wiring.runnable_parts(tmp_path, options(), Java("java", tmp_path))
        texts.add(keys_file(tmp_path).read_text())
    [text] = texts
    assert list(parse_keys(text, "the file")) == ["local"]
    assert keys_file(tmp_path).stat().st_mode & 0o777 == 0o600


def test_more_workers_have_their_own_name_port_and_state() -> None:
    found = {one.name: one for one in service_parts(HOME, options(scale={"segmenter": 2}), Host("python", HOME))}
    first, second = found["segmenter-0"].env, found["segmenter-1"].env
    assert (first["STARLING_HTTP__PORT"], second["STARLING_HTTP__PORT"]) == ("21030", "21031")
    assert (first["STARLING_INSTANCE_ID"], second["STARLING_INSTANCE_ID"]) == ("segmenter-0", "segmenter-1")
    assert first["STARLING_STATE_DIR"] != second["STARLING_STATE_DIR"]


def test_every_service_knows_the_stores_and_the_clock() -> None:
    env = service_parts(HOME, options(clock="event"), Host("python", HOME))[1].env
    assert env["STARLING_KAFKA__BROKERS"] == "127.0.0.1:21003"
    assert env["STARLING_REGISTRY__URL"] == "http://127.0.0.1:21002/apis/ccompat/v7"
    assert env["STARLING_CASSANDRA__PORT"] == "21005"
    assert env["STARLING_CLOCK"] == "event"


def test_no_spark_means_no_spark_and_none_of_its_jars() -> None:
    assert "spark" not in names(planned_parts(HOME, options(spark=False)))
    assert needed_bundles(options(spark=False)) == ["kafka", "cassandra", "registry", "jdbc"]
    assert "spark" in needed_bundles(options())


def of_api(**more: bool) -> Mapping[str, str]:
    return next(part.env for part in planned_parts(HOME, options(**more)) if part.name == "api")


def test_the_niceness_of_jobs_is_10_or_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    def spark() -> Sequence[str]:
        return next(part for part in planned_parts(HOME, options()) if part.name == "spark").command[:3]

    monkeypatch.delenv("STARLING_JOB_NICE")
    assert list(spark()) == ["nice", "-n", "10"]
    monkeypatch.setenv("STARLING_JOB_NICE", "0")
    assert list(spark()) == ["nice", "-n", "0"]
    monkeypatch.setenv("STARLING_JOB_NICE", "20")
    with pytest.raises(PlanError, match="from 0 to 19"):
        spark()


def test_the_api_starts_backfills_only_when_asked_for() -> None:
    assert not [name for name in of_api() if "BACKFILL" in name]
    assert of_api(backfill=True)["STARLING_BACKFILL_RUNNER"] == "process"


def test_the_api_starts_sql_traits_with_a_lake() -> None:
    assert not [name for name in of_api() if "SQL_TRAITS" in name]
    env = of_api(lake=True)
    assert env["STARLING_SQL_TRAITS_RUNNER"] == "process"
    assert env["STARLING_LAKE_WAREHOUSE"] == str(HOME / "spark" / "lake")


@pytest.mark.parametrize("lake", [True, False])
def test_computed_traits_have_the_history_of_the_lake_if_there_is_one(*, lake: bool) -> None:
    host = Host("python", HOME, (Path("kafka.jar"),), (Path("iceberg.jar"),))
    env = next(part.env for part in service_parts(HOME, options(lake=lake), host) if part.name == "spark")
    assert env["STARLING_LAKE_WAREHOUSE"] == (str(HOME / "spark" / "lake") if lake else "")
    assert env["STARLING_SPARK_JARS"] == ("kafka.jar,iceberg.jar" if lake else "kafka.jar")


def test_the_api_starts_imports_with_the_keys_of_all_workspaces() -> None:
    env = next(part.env for part in planned_parts(HOME, options(workspaces=("shop",))) if part.name == "api")
    assert env["STARLING_IMPORTS_RUNNER"] == "process"
    assert write_keys(SecretStr(env["STARLING_IMPORTS_WRITE_KEYS"])) == {"default": "local-write-key", "shop": "shop-write-key"}
    assert api_tokens(SecretStr(env["STARLING_IMPORTS_API_TOKENS"])) == {"default": "local-admin-token", "shop": "shop-admin-token"}
    assert env["STARLING_IMPORTS_API_URL"] == env["STARLING_API_URL"]
    assert env["STARLING_IMPORTS_ROOTS"] == imports_dir(HOME).absolute().as_uri()


@pytest.mark.parametrize(
    ("changed", "restarted"),
    [({"backfill": True}, ["api"]), ({"scale": {"segmenter": 2}}, []), ({"spark": False}, []), ({"views": True}, [])],
)
def test_other_options_restart_only_the_affected_parts(changed: dict[str, object], restarted: list[str]) -> None:
    before = {part.name: part for part in planned_parts(HOME, options())}
    after = [part for part in planned_parts(HOME, options(**changed)) if part.name in before]
    assert [part.name for part in after if not part.runs_as(before[part.name])] == restarted


def test_lake_and_views_are_there_when_asked_for() -> None:
    assert {"lake", "views"}.isdisjoint(names(planned_parts(HOME, options())))
    asked = options(lake=True, views=True, spark=False)
    assert names(planned_parts(HOME, asked))[-2:] == ["lake", "views"]
    assert needed_bundles(asked) == ["kafka", "cassandra", "registry", "spark", "iceberg", "jdbc"]
    assert "iceberg" not in needed_bundles(options(views=True))
    jars = Host("python", HOME, (Path("kafka.jar"),), (Path("iceberg.jar"),))
    lake, views = service_parts(HOME, asked, jars)[-2:]
    assert (lake.env["STARLING_SPARK_JARS"], views.env["STARLING_SPARK_JARS"]) == ("kafka.jar,iceberg.jar", "kafka.jar")
    assert lake.command[-1] == "starling_spark.jobs.lake"
    with_driver = replace(jars, jdbc_jars=(Path("postgresql.jar"),))
    for wanted, found in ((options(), "postgresql.jar"), (asked, "kafka.jar,iceberg.jar,postgresql.jar")):
        (api,) = (one for one in service_parts(HOME, wanted, with_driver) if one.name == "api")
        assert api.env["STARLING_SPARK_JARS"] == found
    assert lake.ports != views.ports


def test_only_brings_what_is_named_and_what_it_needs() -> None:
    assert names(planned_parts(HOME, options(only=("deploy",)))) == ["kafka", "cassandra", "registry", "deploy"]
    assert needed_bundles(options(only=("kafka",))) == ["kafka"]


def test_only_with_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(PlanError, match=r"no part is called frog; the parts are kafka, cassandra"):
        planned_parts(HOME, options(only=("frog",)))


def test_start_order_puts_each_part_after_its_needs() -> None:
    assert names(start_order([part("c", "b"), part("b", "a"), part("a")])) == ["a", "b", "c"]


def test_a_circle_is_named() -> None:
    with pytest.raises(PlanError, match=r"dependency cycle: (a → b → a|b → a → b)"):
        start_order([part("a", "b"), part("b", "a")])


def test_a_missing_need_is_named() -> None:
    with pytest.raises(PlanError, match="a depends on z"):
        start_order([part("a", "z")])


def test_needs_are_followed_to_the_end() -> None:
    assert names(with_dependencies([part("a"), part("b", "a"), part("c", "b"), part("d")], ["c"])) == ["a", "b", "c"]
