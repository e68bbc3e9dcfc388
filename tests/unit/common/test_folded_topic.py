"""A topic folded into a value: a refused record changes nothing, and every reader of definitions refuses an unknown action."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest
from confluent_kafka import Message
from structlog.testing import capture_logs

from starling_api.definitions.definition import Author, defined
from starling_common.kafka.folded_topic import FoldedTopic
from starling_common.kafka.topics import PRODUCTS, SEGMENT_DEFINITIONS
from starling_common.outcome import Done, Outcome, Refused, Skipped
from starling_common.records.definitions import STATUS_AFTER, UnknownAction, definitions_fold, status_after
from starling_common.values import Workspace
from starling_common.wire import Codec, Record
from starling_delivery.targets import Targets, fold_target
from starling_normalizer.catalog import Catalog, fold_product
from starling_projector.projection.rows import Position, rows_of
from starling_rules.definitions import Definitions as Segments
from starling_rules.definitions import fold as fold_segment
from starling_segmenter.switching.definition_log import DefinitionLog
from starling_segmenter.switching.definition_log import fold_topic as fold_log
from starling_spark.jobs.profiles.definitions.in_force import Definitions as Traits
from starling_spark.jobs.profiles.definitions.in_force import fold_definition
from tests.unit.delivery.making import definition

DEFINITION = Codec("DefinitionChanged", 1, lambda _: "")
PRODUCT = Codec("ProductListed", 1, lambda _: "")


@dataclass
class Read:
    """A message as the Kafka client returns it."""

    data: bytes | None
    name: bytes = b"acme/hook"

    def key(self) -> bytes:
        return self.name

    def value(self) -> bytes | None:
        return self.data

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 17


def message(data: bytes | None) -> Message:
    return cast("Message", Read(data))


def changed(action: str, kind: str = "webhook", **document: Any) -> dict[str, Any]:
    record = definition(action=action, **document) | {"workspace": "acme", "kind": kind}
    return record | {"recorded_at": 1, "event_id": "e", "actor": "a", "correlation_id": "c", "awaits_backfill": False}


def webhooks(refused: list[Refused]) -> FoldedTopic[Targets]:
    return FoldedTopic(("127.0.0.1:1", "t"), DEFINITION, Targets(), definitions_fold(fold_target), refused.append)


def test_records_are_folded_in_order() -> None:
    topic = webhooks([])
    topic.apply(message(DEFINITION.encode(changed("DEFINED"))))
    assert [target.key for target in topic.value().of("acme")] == ["hook"]
    topic.apply(message(DEFINITION.encode(changed("ARCHIVED"))))
    assert topic.value().of("acme") == []


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(DEFINITION.encode(changed("RENAMED")), "unknown_action", id="unknown action"),
        pytest.param(DEFINITION.encode(changed("REVISED", url=None) | {"document": "{}"}), "definition_refused", id="bad document"),
        pytest.param(b"junk", "bad_framing", id="unreadable"),
        pytest.param(None, "missing_value", id="tombstone"),
    ],
)
def test_a_refused_definition_is_logged_and_changes_nothing(data: bytes | None, code: str) -> None:
    refused: list[Refused] = []
    topic = webhooks(refused)
    topic.apply(message(DEFINITION.encode(changed("DEFINED"))))
    with capture_logs() as logs:
        topic.apply(message(data))
    assert [target.url for target in topic.value().of("acme")] == ["https://example.com/hook"]
    assert [one.code for one in refused] == [code]
    assert [(line["event"], line["origin"], line["code"]) for line in logs] == [("record_refused", ("t", 0, 17), code)]


def test_a_product_is_replaced_and_removed() -> None:
    catalog = Catalog("127.0.0.1:1", PRODUCT)
    listed = {"listed_at": 1, "workspace": "acme", "product_id": "hook", "category": "shoes", "price": 4.5, "correlation_id": "c"}
    listed |= {"brand": None, "name": "Trail"}
    catalog.apply(message(PRODUCT.encode(listed)))
    found = catalog.find("acme", "hook")
    assert found is not None
    assert (found.category, catalog.find("acme", "other"), catalog.topic) == ("shoes", None, PRODUCTS)
    catalog.apply(message(b"junk"))
    assert catalog.find("acme", "hook") == found
    catalog.apply(message(None))
    assert catalog.find("acme", "hook") is None
    assert fold_product({}, b"acme/x", None) == Done({})


def test_the_segmenter_counts_refused_definitions_and_keeps_the_others() -> None:
    refused: list[Refused] = []
    topic = FoldedTopic(("127.0.0.1:1", SEGMENT_DEFINITIONS), DEFINITION, DefinitionLog(), fold_log, refused.append)
    document = json.dumps({"key": "hook", "name": "A", "where": {"everyone": True}})
    for record in (changed("DEFINED", kind="segment") | {"document": document}, changed("RENAMED", kind="segment")):
        topic.apply(message(DEFINITION.encode(record)))
    topic.apply(message(b"junk"))
    topic.apply(message(None))
    assert list(topic.value().current().of("acme")) == ["hook"]
    assert [one.code for one in refused] == ["unknown_action", "bad_framing"]


def webhook_fold(record: Record) -> Outcome[Any]:
    return definitions_fold(fold_target)(Targets(), b"acme/hook", record)


def trait_fold(record: Record) -> Outcome[Any]:
    return definitions_fold(fold_definition)(Traits(), b"acme/hook", record)


def read_model_rows(record: Record) -> Outcome[Any]:
    return rows_of(SEGMENT_DEFINITIONS, record, Position(0, 1))


def segment_fold(record: Record) -> Outcome[Any]:
    return fold_segment(Segments(), {**record, "kind": "segment"})


FOLDS = (webhook_fold, trait_fold, read_model_rows, segment_fold)


@pytest.mark.parametrize("fold", FOLDS)
def test_every_reader_of_definitions_refuses_an_unknown_action(fold: Callable[[Record], Outcome[Any]]) -> None:
    outcome = fold(changed("RENAMED"))
    assert isinstance(outcome, Refused)
    assert outcome.code == "unknown_action"
    assert "'RENAMED'" in outcome.message


OF_OTHER_KINDS = ((segment_fold, "DISABLED"), (segment_fold, "ACTIVATED"))
"""Only a webhook can be disabled, and only a campaign activated."""
KNOWN = [(fold, action) for fold in FOLDS for action in STATUS_AFTER if (fold, action) not in OF_OTHER_KINDS]


@pytest.mark.parametrize(("fold", "action"), KNOWN)
def test_every_reader_of_definitions_knows_every_action(fold: Callable[[Record], Outcome[Any]], action: str) -> None:
    document = {"key": "hook", "name": "A", "where": {"everyone": True}, "url": "u", "secret": "s"}
    outcome = fold(changed(action, kind="segment") | {"document": json.dumps(document)})
    assert isinstance(outcome, Done | Skipped) or outcome.code != "unknown_action"


def test_the_api_takes_no_unknown_action_for_a_definition() -> None:
    change = defined("segment", Author(Workspace("acme"), "a", "c"), {"key": "n"}, 1)
    assert change.definition().status == "defined"
    object.__setattr__(change, "action", "RENAMED")
    with pytest.raises(UnknownAction, match="RENAMED"):
        change.definition()
    with pytest.raises(UnknownAction):
        status_after("")


def test_a_record_that_makes_the_fold_raise_is_refused_and_the_next_one_is_folded() -> None:
    def fold(value: int, _key: bytes, record: Record | None) -> Outcome[int]:
        assert record is not None
        return Done(value + 10 // (record["version"] - 1))

    refused: list[Refused] = []
    topic = FoldedTopic(("127.0.0.1:1", SEGMENT_DEFINITIONS), DEFINITION, 0, fold, refused.append)
    for version in (1, 3):
        topic.apply(message(DEFINITION.encode(changed("DEFINED") | {"version": version})))
    assert (topic.value(), [one.code for one in refused]) == (5, ["poison"])


def test_a_failure_of_the_world_ends_a_folded_topic() -> None:
    def fold(_value: int, _key: bytes, _record: Record | None) -> Outcome[int]:
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space left"):
        FoldedTopic(("127.0.0.1:1", SEGMENT_DEFINITIONS), DEFINITION, 0, fold).apply(message(None))
