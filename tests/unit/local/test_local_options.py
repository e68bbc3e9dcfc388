import pytest

from starling_local.errors import NotPossible
from starling_local.options import RequestedOptions, first_options, next_options, parse_scale, parse_workspaces


def test_a_new_instance_has_the_defaults() -> None:
    options = first_options(RequestedOptions())
    assert (options.port_base, options.clock, options.spark, options.workers("segmenter")) == (18080, "wall", True, 1)


def test_asking_for_nothing_changes_nothing() -> None:
    before = first_options(RequestedOptions(clock="event", port_base=20_000, spark=False, scale={"segmenter": 2}))
    assert next_options(before, RequestedOptions(), running=True) is before


def test_lake_and_views_start_on_request_and_stay_until_stopped() -> None:
    before = first_options(RequestedOptions())
    assert (before.lake, before.views) == (False, False)
    after = next_options(before, RequestedOptions(lake=True), running=True)
    assert (after.lake, after.views, after.revision) == (True, False, 2)
    assert next_options(after, RequestedOptions(), running=True) is after
    assert next_options(after, RequestedOptions(lake=False), running=True).lake is False


def test_scale_is_taken_over_service_by_service() -> None:
    before = first_options(RequestedOptions(scale={"segmenter": 2}))
    after = next_options(before, RequestedOptions(scale={"normalizer": 3}), running=True)
    assert (after.workers("segmenter"), after.workers("normalizer"), after.revision) == (2, 3, 2)


def test_workspaces_are_added_and_stay() -> None:
    before = first_options(RequestedOptions(workspaces=("shop",)))
    after = next_options(before, RequestedOptions(workspaces=("lab", "shop")), running=True)
    assert (after.workspaces, after.revision) == (("shop", "lab"), 2)
    assert next_options(after, RequestedOptions(), running=True) is after


@pytest.mark.parametrize("name", ["", "Shop", "1shop", "a=b", "a,b", "x" * 65])
def test_a_name_that_no_service_accepts_is_refused(name: str) -> None:
    with pytest.raises(NotPossible, match="write a lower-case letter"):
        parse_workspaces(["lab", name])


def test_the_clock_of_an_instance_cannot_change() -> None:
    with pytest.raises(NotPossible, match="made with --clock wall"):
        next_options(first_options(RequestedOptions()), RequestedOptions(clock="event"), running=False)


def test_ports_move_only_while_nothing_runs() -> None:
    before = first_options(RequestedOptions(port_base=20_000))
    assert next_options(before, RequestedOptions(port_base=20_100), running=False).port_base == 20_100
    assert next_options(before, RequestedOptions(port_base=20_000), running=True) is before
    with pytest.raises(NotPossible, match="runs on port base 20000"):
        next_options(before, RequestedOptions(port_base=20_100), running=True)


def test_a_bad_base_is_refused_with_the_range() -> None:
    with pytest.raises(NotPossible, match="from 1024 to 65425"):
        first_options(RequestedOptions(port_base=80))


def test_scale_is_parsed() -> None:
    assert parse_scale(["segmenter=2", "delivery=10"]) == {"segmenter": 2, "delivery": 10}


@pytest.mark.parametrize("text", ["segmenter", "segmenter=0", "segmenter=11", "segmenter=x", "frog=2", "segmenter=-1", "kafka=2"])
def test_a_bad_scale_is_refused(text: str) -> None:
    with pytest.raises(NotPossible, match="write SERVICE=N"):
        parse_scale([text])


def test_the_parts_of_an_earlier_start_do_not_limit_the_next_one() -> None:
    before = first_options(RequestedOptions(only=("deploy",)))
    assert next_options(before, RequestedOptions(), running=False).only == ()
    assert next_options(before, RequestedOptions(), running=True).only == ("deploy",)
    assert next_options(before, RequestedOptions(only=("api",)), running=False).only == ("api",)
