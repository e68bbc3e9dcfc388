"""The job `reprocess` in a real lake, in the session that all Spark tests share: killed, gone on with, changed, put in force."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession, functions

from starling_common.kafka.topics import BEHAVIOUR, INGEST_TOPICS, PROFILE
from starling_common.outcome import Refused
from starling_common.settings import Clock
from starling_items.item import Track
from starling_items.pipeline import STAGES, Stages, Step
from starling_items.work import StageDependencies, Work
from starling_spark.history.past import corrected_rows
from starling_spark.jobs.lake.batches import LakeWriter, Source
from starling_spark.jobs.reprocess import commands, job
from starling_spark.jobs.reprocess.context import RunContext, Tables
from starling_spark.jobs.reprocess.fold.folding import Making
from starling_spark.jobs.reprocess.job import NotAllowed, ReprocessingNotFound, begun, reprocess, switched
from starling_spark.jobs.reprocess.plan import Plan
from starling_spark.jobs.reprocess.settings import ReprocessSettings
from starling_spark.kafka.sources import RECORDS
from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lakehouse.in_force import EVENT_TABLES, covered, event_rows
from starling_spark.lakehouse.schema.tables import TABLES
from tests.spark.conftest import lake_settings
from tests.spark.received import WIRE, Past, lived, registry

USED = tuple(one for one in TABLES if set(one.topics) <= {*INGEST_TOPICS, BEHAVIOUR, PROFILE})


class Killed(Exception):
    """As by the system."""


@pytest.fixture
def past() -> Past:
    return lived(Clock.EVENT, seed=11, calls=80)


@pytest.fixture
def place(spark: SparkSession, past: Past, tmp_path: Path) -> Iterator[RunContext]:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    lake = Lake(spark, f"r{uuid.uuid4().hex[:10]}")
    LakeWriter(lake, USED, Source(registry(), WIRE.registry_url)).write(spark.createDataFrame(past.records, RECORDS))
    own = {"clock": Clock.EVENT, "reprocess_partitions_at_once": 1, "reprocess_settle_seconds": 0}
    yield RunContext(spark, WIRE, ReprocessSettings(**{**lake_settings(tmp_path).model_dump(), **own}), lake)
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Chatham")


def planned(place: RunContext, name: str) -> Callable[[], Plan]:
    return lambda: job.planned(place, name, "then")


@pytest.mark.long
def test_the_life_of_a_reprocessing(place: RunContext, past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    """One test, for each table costs a second. What was received in the last three hours came too late for it."""
    late_ms = past.now_micros // 1000 - 3 * 3_600_000
    monkeypatch.setattr(job, "first_missing", lambda _place, taken: dict.fromkeys({number for _, number in taken}, late_ms))
    with pytest.raises(ReprocessingNotFound):
        switched(place, "spring")
    plan = begun(place, planned(place, "spring"), "spring", overwrite=False)

    def killed(_: Plan) -> None:
        raise Killed

    with pytest.raises(Killed):
        reprocess(place, plan, Making(Clock.EVENT, {}), killed)
    with pytest.raises(NotAllowed, match="not finished"):
        switched(place, "spring")
    half = begun(place, pytest.fail, "spring", overwrite=False)
    assert half.left() == [1]
    tables = Tables(place, "spring")
    # It was killed before it reported the first partition as done: none of its records is repeated.
    tables.write_plan(plan)
    done = reprocess(place, plan, Making(Clock.EVENT, {}))
    assert done.is_done
    assert done.done[0] == half.done[0]
    for table in EVENT_TABLES.values():
        live = place.lake.rows(table).where(covered(done.cut, functions.unix_micros("received_at")))
        assert tables.lake.rows(table).count() == live.count()
    differences, differs = commands.diff(place, arguments("spring"))
    assert not differs, differences
    with pytest.raises(NotAllowed, match="exists already"):
        begun(place, pytest.fail, "spring", overwrite=False)
    _change_a_rule(place)
    _put_in_force(place, done)


def _change_a_rule(place: RunContext) -> None:
    """From now on pages are refused, and purchases have another event name."""

    def renamed(work: Work, _: StageDependencies) -> Step:
        if isinstance(work.item, Track):
            work.item.event = "Bought"
            return work
        if work.received["kind"] == "alias":
            raise RecursionError("too deep")
        return Refused("no_pages", "pages are not taken any more") if work.received["kind"] == "page" else work

    stages = Stages((*STAGES.read, renamed), STAGES.fold)
    plan = begun(place, planned(place, "summer"), "summer", overwrite=False)
    at_once = replace(place, settings=place.settings.model_copy(update={"reprocess_partitions_at_once": 2}))
    done = reprocess(at_once, plan, Making(Clock.EVENT, {}, stages))
    lake = Tables(place, "summer").lake
    assert {row["name"] for row in lake.rows("behaviour_events").collect()} == {"Bought"}
    pages = place.lake.rows("behaviour_events").where("kind = 'page'").count()
    codes = [row["code"] for row in lake.rows("quarantine").collect()]
    assert 0 < codes.count("no_pages") <= pages + 20
    # An alias of the user's own id is refused before the stage that raises.
    aliases = place.lake.rows("ingest_items").where("kind = 'alias'").count() - codes.count("alias_of_itself")
    assert codes.count("poison") == aliases > 0, "rows that make the code raise are refused, and no other"
    assert done.totals()["refused"] == len(codes) > codes.count("no_pages") > 0, "the quarantine has every one, with its reason"
    text, differs = commands.diff(place, arguments("summer"))
    assert differs, text
    kept = lake.rows("quarantine").where("code = 'no_pages'").first()
    assert kept is not None
    assert WIRE.codec("ingest.page").decode(bytes(kept["value"]))["kind"] == "page"


def _put_in_force(place: RunContext, plan: Plan) -> None:
    own = place.lake.rows("behaviour_events").count()
    assert switched(place, "summer") is None
    now = event_rows(place.lake, "behaviour_events")
    assert now.corrected is not None
    corrected, later = now.corrected.count(), now.own.count()
    assert corrected > later > 0, "what was received after the cut is in the lake's own table alone"
    assert {row["name"] for row in now.own.where("kind = 'track'").collect()} == {"Buy"}
    replayed = corrected_rows(now.corrected, BEHAVIOUR, "").collect()
    assert len({(row["partition"], row["offset"]) for row in replayed}) == corrected
    with pytest.raises(NotAllowed, match="is in force"):
        commands.remove(place, arguments("summer"))
    before = switched(place, plan.name)
    assert before is not None
    assert before.name == "summer"
    assert "spring  in force" in commands.listed(place, arguments(""))[0]
    switched(place, None)
    assert event_rows(place.lake, "behaviour_events").corrected is None
    assert event_rows(place.lake, "behaviour_events").own.count() == own
    commands.remove(place, arguments("summer"))
    assert Tables(place, "summer").plan() is None


def arguments(name: str) -> commands.Arguments:
    return commands.Arguments(name=name)
