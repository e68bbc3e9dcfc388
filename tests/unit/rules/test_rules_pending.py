"""Versions in force beside pending ones: those in force are always consistent, and the result does not depend on the order."""

import json
import random
from typing import Any

import pytest

from starling_common.cassandra.read_models import BACKFILL
from starling_common.outcome import Done, Refused, Skipped
from starling_rules.backfills import EVERYWHERE, MAX_BACKFILLS, Backfill, Part, to_json
from starling_rules.definitions import Definitions, fold, fold_topic
from starling_rules.rules import compile_rules

A, B, C = {"event": "A"}, {"event": "B"}, {"event": "C"}


def using(*keys: str) -> dict[str, Any]:
    return {"all": [{"segment": key} for key in keys]}


def changed(key: str, where: object, version: int = 1, action: str = "DEFINED", *, waits: bool = False) -> dict[str, Any]:
    document = json.dumps({"key": key, "name": key, "where": where})
    fields = {"kind": "segment", "workspace": "w", "key": key, "version": version, "action": action}
    return {**fields, "document": document, "correlation_id": "c", "awaits_backfill": waits}


def backfilled(run: str = "run", /, **versions: int) -> dict[str, Any]:
    backfill = Backfill(run, {f"w/{key}": version for key, version in versions.items()}, {"w": []}, {0: Part({}, 0, 0, 0, 0)})
    return {"kind": BACKFILL, "workspace": EVERYWHERE, "key": run, "document": to_json(backfill)}


def after(*records: dict[str, Any]) -> Definitions:
    definitions = Definitions()
    for record in records:
        outcome = fold(definitions, record)
        assert isinstance(outcome, Done), outcome
        definitions = outcome.value
        compile_rules(definitions, {})  # never raises: the segments in force are consistent
    return definitions


def test_a_cycle_between_a_version_in_force_and_a_pending_one_is_refused() -> None:
    records = [changed("y", A), changed("b", using("y")), changed("b", B, 2, "REVISED", waits=True)]
    definitions = after(*records, changed("y", using("b"), 2, "REVISED"))
    assert definitions.versions == {"w/y": 1, "w/b": 1}
    assert after(*records, changed("y", using("b"), 2, "REVISED"), backfilled(b=2)).versions == {"w/y": 2, "w/b": 2}


def test_a_segment_that_an_older_version_uses_is_archived_after_that_version() -> None:
    records = [changed("y", A), changed("b", using("y")), changed("b", B, 2, "REVISED", waits=True)]
    archived = changed("y", A, action="ARCHIVED")
    assert after(*records, archived).versions == {"w/y": 1, "w/b": 1}
    assert after(*records, archived, backfilled(b=2)).versions == {"w/b": 2}


def test_a_segment_that_a_pending_version_uses_cannot_be_archived() -> None:
    definitions = after(changed("y", A), changed("b", using("y"), waits=True))
    outcome = fold(definitions, changed("y", A, action="ARCHIVED"))
    assert isinstance(outcome, Refused)
    assert outcome.code == "in_use"


def test_a_version_without_a_backfill_replaces_a_pending_one() -> None:
    definitions = after(changed("b", A, waits=True), changed("b", B, 2, "REVISED"))
    assert (definitions.versions, definitions.awaited()) == ({"w/b": 2}, {})


def test_a_new_text_does_not_end_the_wait() -> None:
    definitions = after(changed("b", A, waits=True), changed("b", A, 1, "REVISED"))
    assert (definitions.versions, definitions.awaited()) == ({}, {"w/b": 1})


def test_an_unreadable_backfill_changes_nothing() -> None:
    outcome = fold(after(changed("b", A, waits=True)), {**backfilled(b=1), "document": "{}"})
    assert isinstance(outcome, Refused)


def test_only_the_last_runs_are_kept() -> None:
    definitions = after(*(backfilled(f"run-{number}") for number in range(MAX_BACKFILLS + 3)))
    assert [one.run for one in definitions.backfills] == [f"run-{number}" for number in range(3, MAX_BACKFILLS + 3)]


@pytest.mark.parametrize("seed", range(30))
def test_the_result_is_that_of_definitions_without_backfills(seed: int) -> None:
    draw, keys = random.Random(seed), ["a", "b", "c", "d"]
    waiting, plain, versions = Definitions(), Definitions(), dict.fromkeys(keys, 0)
    for _ in range(25):
        key = draw.choice(keys)
        where = draw.choice([A, B, C, using(draw.choice(keys)), using(*draw.sample(keys, 2))])
        versions[key] += 1
        record = changed(key, where, versions[key], "REVISED", waits=draw.random() < 0.5)
        outcome, other = fold(waiting, record), fold(plain, {**record, "awaits_backfill": False})
        assert type(outcome) is type(other)  # refusals do not depend on pending versions
        waiting = outcome.value if isinstance(outcome, Done) else waiting
        plain = other.value if isinstance(other, Done) else plain
        compile_rules(waiting, {})
        if draw.random() < 0.2:
            done = fold(waiting, backfilled(**{place.removeprefix("w/"): one for place, one in waiting.awaited().items()}))
            assert isinstance(done, Done)
            waiting = done.value
    last = fold(waiting, backfilled(**{place.removeprefix("w/"): one for place, one in waiting.awaited().items()}))
    assert isinstance(last, Done)
    assert last.value.name == plain.name
    assert last.value.pending == {}


def test_the_fold_of_the_records_in_force_returns_the_same_set() -> None:
    definitions = after(changed("y", A), changed("b", using("y")), changed("a", using("b", "y")), changed("c", C, action="PAUSED"))
    assert after(*definitions.records("w")).name == definitions.name  # type: ignore[arg-type]


def test_the_fold_of_the_topic_skips_tombstones() -> None:
    definitions = after(changed("buyers", A))
    assert isinstance(fold_topic(definitions, b"w/buyers", None), Skipped)
    assert fold_topic(definitions, b"w/other", changed("other", A)) == fold(definitions, changed("other", A))
