"""Two edges, a normalizer and a segmenter as processes: neither delays nor a busy machine nor a backlog change the order."""

import random
from pathlib import Path

from tests.faults.order import Phases, run


def test_the_feed_is_the_fold_in_the_order_of_arrival_and_a_replay_equals_it(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    verdict = run(tmp_path, seed, Phases(quiet=6, busy=6, backlog=8, zombie=False))
    assert verdict.good, (f"seed {seed}", verdict)
    assert verdict.counts["produce requests delayed"] > 20, (f"seed {seed}", verdict)
    assert verdict.counts["events"] > 100, (f"seed {seed}", verdict)
    assert verdict.counts["feed records"] > 100, (f"seed {seed}", verdict)
    assert verdict.counts["feed records of the replay"] == verdict.counts["feed records"], (f"seed {seed}", verdict)
