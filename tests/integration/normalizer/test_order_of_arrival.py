"""Two edges, a normalizer and a segmenter as processes: neither delays nor a busy machine nor a backlog change the order."""

import random
from pathlib import Path

import pytest

from tests.faults.order import Phases, run


@pytest.mark.long
def test_the_feed_is_the_fold_in_the_order_of_arrival_and_a_replay_equals_it(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    findings = run(tmp_path, seed, Phases(quiet=6, busy=6, backlog=8, zombie=False))
    assert findings.good, (f"seed {seed}", findings)
    assert findings.counts["produce requests delayed"] > 20, (f"seed {seed}", findings)
    assert findings.counts["events"] > 100, (f"seed {seed}", findings)
    assert findings.counts["feed records"] > 100, (f"seed {seed}", findings)
    assert findings.counts["feed records of the replay"] == findings.counts["feed records"], (f"seed {seed}", findings)
