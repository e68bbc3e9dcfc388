from starling_cli.settle.progress import PipelineState, behind, describe, is_settled, lag, positions, stages_of
from starling_common.kafka.topics import Stage, load_catalogue

A0, A1 = ("a", 0), ("a", 1)


def test_a_group_that_never_committed_stands_at_the_first_record_kept() -> None:
    assert positions({}, {A0: 40}, {A0: 50}) == {A0: 40}


def test_a_commit_older_than_what_is_kept_counts_from_what_is_kept() -> None:
    assert positions({A0: 10}, {A0: 40}, {A0: 50}) == {A0: 40}


def test_an_empty_partition_is_not_behind() -> None:
    assert behind(positions({}, {A0: 0}, {A0: 0}), {A0: 0}) == {}


def test_only_partitions_that_hold_records_count_as_lag() -> None:
    ends = {A0: 100, A1: 100}
    current = {A0: 99, A1: 90}
    assert behind(current, ends) == current
    # A0's last offset is a transaction marker.
    assert lag(current, ends, {A1}) == 10


def test_settled_means_no_lag_and_nothing_written_or_open_meanwhile() -> None:
    assert is_settled(PipelineState({A0: 5}, {A0: 5}))
    assert not is_settled(PipelineState({A0: 5}, {A0: 6}))
    assert not is_settled(PipelineState({A0: 5}, {A0: 5}, lags={"segmenter": 1}))
    assert not is_settled(PipelineState({A0: 5}, {A0: 5}, unfinished=["segment x is backfilling"]))


def test_the_stage_that_lags_is_named_with_its_figure() -> None:
    assert describe(PipelineState({}, {}, lags={"normalizer": 1, "segmenter": 1234})) == (
        "normalizer lags by 1 record; segmenter lags by 1,234 records"
    )
    assert describe(PipelineState({}, {}, unfinished=["segment x is backfilling"])) == "segment x is backfilling"
    assert describe(PipelineState({A0: 5}, {A0: 6})) == "records are still being written"


def test_stages_without_a_part_here_are_not_waited_for() -> None:
    stages = [Stage(name, f"g-{name}", ("a",), False) for name in ("normalizer", "segmenter", "profiles", "webhook")]
    assert [s.name for s in stages_of(stages, ["normalizer", "delivery"])] == ["normalizer", "webhook"]
    assert [s.name for s in stages_of(stages, ["segmenter", "spark"])] == ["segmenter", "profiles"]


def test_a_stage_that_no_part_of_a_local_stack_serves_is_waited_for() -> None:
    stages = [Stage(name, f"g-{name}", ("a",), True) for name in ("normalizer", "lake", "streaks")]
    assert [s.name for s in stages_of(stages, ["normalizer"])] == ["normalizer", "streaks"]


def test_every_stage_of_the_catalogue_has_a_part_in_the_whole_stack() -> None:
    services = [
        "ingest",
        "normalizer",
        "segmenter",
        "projector",
        "api",
        "delivery",
        "delivery-feeds",
        "delivery-email",
        "messenger",
    ]
    parts = [*services, "spark", "lake", "views"]
    stages = load_catalogue().stages
    assert stages_of(stages, parts) == [stage for stage in stages if not stage.name.endswith("-retry")]
    assert stages_of(stages, []) == []
