from pathlib import Path

from starling_cli.status import NO_INSTANCE, endpoints, service_of, status_document, stopped
from starling_local.instance import Options, PartReport, Report
from starling_local.stack.wiring import planned_parts

OPTIONS = Options(instance_id="i", port_base=21_000, scale={"segmenter": 2})
PARTS = planned_parts(Path("/data"), OPTIONS)


def report(*parts: PartReport) -> Report:
    return Report(supervisor_pid=1, supervisor_started_at=1.0, revision=1, parts=parts)


def test_the_document_has_the_contracts_shape() -> None:
    ready = PartReport(name="segmenter-1", state="ready", pid=7, started_at=1.0, restarts=2, last_end="killed by signal 9")
    document = status_document(OPTIONS, PARTS, report(ready), {"segmenter": 12})
    assert document["ready"] is True
    assert set(document["endpoints"]) == {"ingest", "api", "console", "tracker", "registry", "kafka", "cassandra", "metrics"}
    assert document["parts"] == [
        {"name": "segmenter-1", "state": "ready", "pid": 7, "lag": 12, "restarts": 2, "last_end": "killed by signal 9"}
    ]


def test_a_service_that_was_started_by_hand_is_shown_with_its_lag() -> None:
    ready = PartReport(name="segmenter-1", state="ready", pid=7, started_at=1.0)
    document = status_document(OPTIONS, PARTS, report(ready), {"segmenter": 12, "streaks": 3})
    assert document["parts"][1:] == [{"name": "streaks", "state": "external", "pid": None, "lag": 3, "restarts": 0, "last_end": ""}]
    assert document["ready"] is True


def test_without_an_instance_the_shape_is_the_same() -> None:
    document = status_document(OPTIONS, PARTS, report(), {})
    assert set(NO_INSTANCE) == set(document)
    assert set(NO_INSTANCE["endpoints"]) == set(document["endpoints"])


def test_one_part_that_is_not_ready_is_enough() -> None:
    parts = (PartReport(name="kafka", state="ready"), PartReport(name="api", state="unready"))
    assert status_document(OPTIONS, PARTS, report(*parts), {})["ready"] is False


def test_no_parts_at_all_is_not_ready() -> None:
    assert report().is_ready is False


def test_addresses() -> None:
    found = endpoints(OPTIONS, PARTS)
    assert found["ingest"] == "http://127.0.0.1:21000"
    assert found["console"] == found["api"] == "http://127.0.0.1:21001"
    assert found["kafka"] == "127.0.0.1:21003"
    assert found["metrics"]["segmenter"] == "http://127.0.0.1:21030/metrics"
    assert found["metrics"]["segmenter-1"] == "http://127.0.0.1:21031/metrics"
    assert found["metrics"]["ingest"] == "http://127.0.0.1:21000/metrics"


def test_a_part_that_is_not_there_has_no_address() -> None:
    options = Options(instance_id="i", port_base=21_000, only=("kafka",))
    found = endpoints(options, planned_parts(Path("/data"), options))
    assert found["kafka"] == "127.0.0.1:21003"
    assert (found["api"], found["console"], found["cassandra"], found["metrics"]) == (None, None, None, {})


def test_a_step_is_shown_only_while_it_is_not_done() -> None:
    done = PartReport(name="deploy", state="done", is_step=True)
    failed = PartReport(name="deploy", state="backoff", is_step=True)
    assert status_document(OPTIONS, PARTS, report(done), {})["parts"] == []
    assert status_document(OPTIONS, PARTS, report(failed), {})["parts"][0]["state"] == "backoff"


def test_what_a_dead_supervisor_wrote_last_is_not_believed() -> None:
    left = stopped(report(PartReport(name="kafka", state="ready", pid=7)))
    assert left.parts == (PartReport(name="kafka", state="stopped"),)
    assert left.is_ready is False


def test_the_service_of_a_part() -> None:
    assert [service_of(name) for name in ("segmenter-1", "api", "spark")] == ["segmenter", "api", "spark"]
