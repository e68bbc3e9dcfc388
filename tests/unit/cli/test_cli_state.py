import pytest

from starling_cli.commands.state import inspect_user, rebuild_partition
from starling_local.errors import NotPossible


def test_a_stage_that_keeps_no_states_is_refused_with_those_that_do() -> None:
    with pytest.raises(NotPossible, match="the stage ingest has no state; the stages with state are normalizer, segmenter"):
        inspect_user("u1", stage="ingest")


@pytest.mark.parametrize("text", ["x", "-1", "", "1.5"])
def test_what_is_no_partition_is_refused(text: str) -> None:
    with pytest.raises(NotPossible, match="a number, or `all`"):
        rebuild_partition(text)
