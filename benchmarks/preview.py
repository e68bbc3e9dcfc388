"""Preview, diff and explain over very many users: `python benchmarks/preview.py --users 1000000 --write`.

States and events go straight into the tables, as the segmenter's tier and the projector would have left them: the states are
made by the segment package itself, from 2,000 different lives that are assigned to all users. The API runs as a process of
its own and is asked over HTTP. The truth is known, so each answer's interval is checked against it.
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx
from common.bench import Stack, keep, stack
from common.preview_load import NOW_MS, TINY, WORKSPACE, Life, hash_of, is_in, life_of, lives, load, segments

from starling_common.cassandra.database import Database
from starling_common.settings import Cassandra
from starling_common.testing import running
from starling_segments import (
    Evaluator,
    Known,
    compile_plan,
    compile_preview,
    decode_state,
    encode_state,
    evaluate,
    parse_segment,
    required_history,
)
from starling_segments.preview import RequiredHistory, SegmentPreview, fold_history

ROUNDS: Final = 15
_BOUGHT: Final = {"event": "Order Completed"}
RARE: Final = {"bucket": {"salt": "x", "from": 0, "to": 1}}
BUCKETED: Final = (TINY, RARE)
"""Only these users can be members of such a segment, which makes the truth fast to compute."""
PREVIEWS: Final[Mapping[str, dict[str, Any]]] = {
    "kept by running segments": {"all": [{**_BOUGHT, "within": "7d"}, {"trait": "age", "op": "gte", "value": 50}]},
    "kept, rare": {"all": [{**_BOUGHT, "op": "gte", "value": 2, "within": "90d"}, RARE]},
    "folded from events": {**_BOUGHT, "within": "21d"},
    "folded, looking inside": {**_BOUGHT, "where": {"property": "revenue", "op": "gte", "value": 150}, "within": "14d"},
}
DIFFS: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    "kept by running segments": ("buyers-7d", {**_BOUGHT, "op": "gte", "value": 2, "within": "7d"}),
    "folded from events": ("buyers-7d", {**_BOUGHT, "within": "10d"}),
    "a small segment": ("tiny", {"all": [TINY, {**_BOUGHT, "within": "7d"}]}),
}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--write", action="store_true", help="keep the figures in benchmarks/results")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="starling-preview-") as directory:
        found = measured(Path(directory), asked.users)
    print(json.dumps(found, indent=2))
    if asked.write:
        keep("preview", found)
    return 0


def measured(directory: Path, users: int) -> dict[str, Any]:
    plan = compile_plan(list(segments().values()))
    pool = lives(Evaluator(plan))
    with stack(directory / "stack", cassandra=True) as made:
        began = time.monotonic()
        database = Database(_cassandra(made))
        load(made, database, pool, users)
        database.close()
        loaded = time.monotonic() - began
        print(f"{users:,} users loaded in {loaded:.0f} s", file=sys.stderr)
        environment = {**made.environment(), "STARLING_TOKENS": f"token=viewer:{WORKSPACE}"}
        with running("starling_api", environment, directory / "api.log") as service:
            headers = {"Authorization": "Bearer token"}
            with httpx.Client(base_url=service.url, headers=headers, timeout=60, trust_env=False) as api:
                figures = measure_requests(api, pool, users)
    return {
        "users": users,
        "segments": len(segments()),
        "events_a_user": round(statistics.mean(len(life.events) for life in pool), 1),
        "state_bytes": round(statistics.mean(len(encode_state(life.state)) for life in pool)),
        "load_seconds": round(loaded),
        **figures,
        "load_average_5m": round(os.getloadavg()[1], 1),
    }


def measure_requests(api: httpx.Client, pool: Sequence[Life], users: int) -> dict[str, Any]:
    """Measure each request several times. The first response, which compiles and connects, is measured separately."""
    found: dict[str, Any] = {"preview": {}, "diff": {}, "explain": {}}
    first = time.monotonic()
    api.post("/v1/segments/preview", json={"where": {"everyone": True}}).raise_for_status()
    found["first_answer_ms"] = round((time.monotonic() - first) * 1000)
    for name, where in PREVIEWS.items():
        truth = sum(after for _, after in memberships(pool, users, where, None))
        answers = list(_rounds(api, "/v1/segments/preview", where))
        covered = sum(one["low"] <= truth <= one["high"] for _, one in answers)
        found["preview"][name] = {**_figures(answers), "truth": truth, "covered": f"{covered} of {len(answers)}"}
    for name, (key, where) in DIFFS.items():
        changes = list(memberships(pool, users, where, key))
        enter, leave = sum(a and not b for b, a in changes), sum(b and not a for b, a in changes)
        answers = list(_rounds(api, f"/v1/segments/{key}/diff", where))
        covered = [
            sum(one[side]["low"] <= truth <= one[side]["high"] for _, one in answers)
            for side, truth in (("enter", enter), ("leave", leave))
        ]
        last = answers[-1][1]
        found["diff"][name] = {
            **_times([took for took, _ in answers]),
            "asked": last["asked"],
            "enter": {**_bare(last["enter"]), "truth": enter, "covered": f"{covered[0]} of {len(answers)}"},
            "leave": {**_bare(last["leave"]), "truth": leave, "covered": f"{covered[1]} of {len(answers)}"},
        }
    found["explain"] = _times(list(_explained(api, users)))
    return found


def memberships(pool: Sequence[Life], users: int, where: Mapping[str, Any], replaces: str | None) -> Iterator[tuple[bool, bool]]:
    """(is in the segment that would be replaced, would be in the new one) of every user: the truth."""
    known = Known({key: frozenset() for key in segments()})
    trial = compile_preview(
        parse_segment({"key": "asked", "name": "asked", "where": dict(where)}, known), segments(), replaces, frozenset()
    )
    past = required_history(trial, frozenset(compile_plan(list(segments().values())).leaves), NOW_MS)
    by_life = [_membership(trial, past, life, "unknown") for life in pool]
    chosen = next((one for one in BUCKETED if json.dumps(one) in json.dumps(where)), None)
    for user in (f"user-{number}" for number in range(users)):
        if chosen is None:
            yield by_life[hash_of(user) % len(pool)]
        elif is_in(chosen, user):
            yield _membership(trial, past, life_of(pool, user), user)
        else:
            yield False, False


def _membership(trial: SegmentPreview, past: RequiredHistory | None, life: Life, user: str) -> tuple[bool, bool]:
    state = decode_state(encode_state(life.state))
    state.user_id = user
    memory = None if past is None else (fold_history(past, state, ((event, NOW_MS) for event in life.events), NOW_MS), past.fresh)
    found = evaluate(trial, state, memory, NOW_MS)
    return found.before, found.after


def _rounds(api: httpx.Client, path: str, where: Mapping[str, Any]) -> Iterator[tuple[float, dict[str, Any]]]:
    for _ in range(ROUNDS):
        began = time.monotonic()
        answer = api.post(path, json={"where": where}).raise_for_status().json()
        yield (time.monotonic() - began) * 1000, answer


def _explained(api: httpx.Client, users: int) -> Iterator[float]:
    dice = random.Random(3)
    for _ in range(200):
        user, key = f"user-{dice.randrange(users)}", dice.choice(("carts", "any-of-it", "loyal"))
        began = time.monotonic()
        api.get(f"/v1/users/{user}/explain/{key}").raise_for_status()
        yield (time.monotonic() - began) * 1000


def _figures(answers: Sequence[tuple[float, dict[str, Any]]]) -> dict[str, Any]:
    last = answers[-1][1]
    return {**_times([took for took, _ in answers]), "asked": last["asked"], **_bare(last), "exact": last["exact"]}


def _bare(estimate: Mapping[str, Any]) -> dict[str, Any]:
    return {name: estimate[name] for name in ("estimate", "low", "high")}


def _times(took: Sequence[float]) -> dict[str, Any]:
    ordered = sorted(took)
    return {
        "p50_ms": round(statistics.median(ordered)),
        "p95_ms": round(ordered[int(len(ordered) * 0.95)]),
        "max_ms": round(ordered[-1]),
    }


def _cassandra(made: Stack) -> Cassandra:
    host, _, port = made.cassandra.partition(":")
    return Cassandra(contact_points=host, port=int(port))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
