"""Two edges, a normalizer and a segmenter as processes: delayed produce requests and a stalled edge do not change the order."""

import random
from pathlib import Path

from tests.faults.order import run


def test_the_feed_is_the_fold_in_the_order_of_arrival(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    verdict = run(tmp_path, seed, seconds=6)
    assert verdict.good, (f"seed {seed}", verdict)
    assert verdict.counts["produce requests delayed"] > 20, (f"seed {seed}", verdict)
    assert verdict.counts["records that overtook an older one of their topic"] > 0, (f"seed {seed}", verdict)
    assert verdict.counts["events"] > 100, (f"seed {seed}", verdict)
    assert verdict.counts["feed records"] > 100, (f"seed {seed}", verdict)
