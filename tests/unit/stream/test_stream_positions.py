"""Offsets that an operator must not move."""

import pytest

from starling_stream.inspect.positions import CannotMove, rewind


@pytest.mark.parametrize("stage", ["segmenter", "webhook", "no-such-stage"])
def test_only_a_stage_whose_writes_can_be_repeated_is_rewound(stage: str) -> None:
    with pytest.raises(CannotMove, match="only projector and projector-events can be rewound"):
        rewind("127.0.0.1:1", "http://127.0.0.1:1", stage, 1.0)
