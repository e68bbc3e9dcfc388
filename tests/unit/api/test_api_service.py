"""What one can do with definitions, and what two who do it at once get."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from starling_api.definitions.commands.changes import ABANDONED_MICROS, READ_YOUR_WRITES_SECONDS
from starling_api.definitions.commands.commands import Commands
from starling_api.definitions.definition import Definition, archived, revised
from starling_api.definitions.kinds.kinds import LISTS, SEGMENTS, TRAITS, WEBHOOKS
from starling_api.http.errors import Archived, InUse, NotFound, ReadOnly, ResourceBusy, VersionConflict
from starling_api.ports import ReportedProgress
from starling_common.kafka.clients import BrokerUnavailable
from starling_common.time.instants import format_instant
from starling_common.time.timezones import Timezones
from starling_segments import DefinitionRefused
from tests.unit.api.memory import AUTHOR, World

BUYERS = {"key": "buyers", "name": "Buyers", "where": {"event": "Order Completed"}}


def segment(key: str, where: dict[str, Any]) -> dict[str, Any]:
    return {"key": key, "name": key, "where": where}


def codes(refused: pytest.ExceptionInfo[DefinitionRefused]) -> list[tuple[str, str]]:
    return [(fault.pointer, fault.code) for fault in refused.value.errors]


def test_defining_claims_publishes_and_shows() -> None:
    world = World()
    made = world.commands.define(SEGMENTS, AUTHOR, BUYERS)
    assert (made.key, made.version, made.document["timezone"]) == ("buyers", 1, "UTC")
    assert [(change.action, change.version, change.actor) for change in world.published] == [("DEFINED", 1, "marketer-1")]
    assert world.reader.definition("acme", "segment", "buyers") == made
    assert world.slept_seconds == 0


def test_definitions_whose_claims_were_lost_can_be_changed_and_not_created_again() -> None:
    world = World()
    commands = world.commands
    commands.define(SEGMENTS, AUTHOR, BUYERS)
    paused_before = commands.pause(SEGMENTS, AUTHOR, "buyers", None)
    world.claims.newest_claims.clear()
    assert commands.put(SEGMENTS, AUTHOR, "buyers", BUYERS, None) == (False, paused_before)
    with pytest.raises(DefinitionRefused):
        commands.define(SEGMENTS, AUTHOR, BUYERS)
    world.claims.newest_claims.clear()
    changed = commands.revise(SEGMENTS, AUTHOR, "buyers", {**BUYERS, "where": {"event": "Signed Up"}}, paused_before.revision)
    assert (changed.version, changed.status) == (2, "paused")
    assert [(change.action, change.version) for change in world.published] == [("DEFINED", 1), ("PAUSED", 1), ("PAUSED", 2)]


def test_a_write_waits_a_limited_time_for_the_read_model() -> None:
    world = World(projector_is_down=True)
    made = world.commands.define(SEGMENTS, AUTHOR, BUYERS)
    assert made.version == 1
    assert world.slept_seconds >= READ_YOUR_WRITES_SECONDS


def test_repeated_pauses_and_resumptions_have_no_effect() -> None:
    world = World()
    commands = world.commands
    commands.define(SEGMENTS, AUTHOR, BUYERS)
    for turn, status in ((commands.pause, "paused"), (commands.resume, "defined")):
        if_match: int | None = world.published[-1].recorded_at_micros
        for _ in range(2):
            turned = turn(SEGMENTS, AUTHOR, "buyers", if_match)
            assert (turned.status, turned.version, turned.revision) == (status, 1, world.published[-1].recorded_at_micros)
            if_match = None
    assert [change.action for change in world.published] == ["DEFINED", "PAUSED", "RESUMED"]
    assert world.published[1].document == world.published[0].document
    with pytest.raises(VersionConflict):
        commands.pause(SEGMENTS, AUTHOR, "buyers", 7)
    with pytest.raises(NotFound):
        commands.resume(SEGMENTS, AUTHOR, "unknown", None)
    commands.archive(SEGMENTS, AUTHOR, "buyers", None)
    for turn in (commands.pause, commands.resume):
        with pytest.raises(Archived):
            turn(SEGMENTS, AUTHOR, "buyers", None)


def test_a_pause_waits_until_no_partition_evaluates_the_segment() -> None:
    world = World()
    world.commands.define(SEGMENTS, AUTHOR, BUYERS)
    world.audience.reported = {0: ReportedProgress(1, {"acme/buyers": 1}), 1: ReportedProgress(1, {})}
    pauses: list[bool] = []

    def take_over() -> None:
        pauses.append(True)
        if len(pauses) == 3:
            world.audience.reported[0] = ReportedProgress(2, {})

    world.on_sleep = take_over
    assert world.commands.pause(SEGMENTS, AUTHOR, "buyers", None).status == "paused"
    assert len(pauses) == 3
    world.audience.reported[0] = ReportedProgress(1, {"acme/buyers": 1})  # a segmenter that is away is not waited for endlessly
    before = world.slept_seconds
    world.commands.pause(SEGMENTS, AUTHOR, "buyers", None)
    assert world.slept_seconds - before >= READ_YOUR_WRITES_SECONDS


def test_a_paused_segment_stays_paused_when_it_is_revised() -> None:
    world = World()
    world.commands.define(SEGMENTS, AUTHOR, BUYERS)
    world.commands.pause(SEGMENTS, AUTHOR, "buyers", None)
    new = world.commands.revise(SEGMENTS, AUTHOR, "buyers", segment("buyers", {"everyone": True}), None)
    assert (new.version, new.status) == (2, "paused")
    assert world.published[-1].action == "PAUSED"
    assert world.commands.resume(SEGMENTS, AUTHOR, "buyers", new.revision).status == "defined"


@pytest.mark.parametrize(
    ("change", "version"),
    [
        pytest.param({"name": "Renamed"}, 1, id="a name keeps the version"),
        pytest.param({"description": "more words"}, 1, id="a description keeps the version"),
        pytest.param({"timezone": "Asia/Tokyo"}, 2, id="a timezone makes a new one"),
        pytest.param({"where": {"event": "Order Completed", "op": "gte", "value": 2}}, 2, id="a condition makes a new one"),
    ],
)
def test_only_a_changed_meaning_makes_a_new_version(change: dict[str, Any], version: int) -> None:
    world = World()
    world.commands.define(SEGMENTS, AUTHOR, BUYERS)
    revised_ = world.commands.revise(SEGMENTS, AUTHOR, "buyers", {**BUYERS, **change}, None)
    assert revised_.version == version
    assert [change.action for change in world.published] == ["DEFINED", "REVISED"]
    assert world.published[1].recorded_at_micros > world.published[0].recorded_at_micros


def test_an_equal_document_is_not_published() -> None:
    world = World()
    made = world.commands.define(SEGMENTS, AUTHOR, BUYERS)
    sent_back = {**world.queries.definition(SEGMENTS, "acme", "buyers")[1], "size": 5, "backfill": {}, "status": "active"}
    assert world.commands.revise(SEGMENTS, AUTHOR, "buyers", sent_back, None) == made
    assert len(world.published) == 1


@pytest.mark.parametrize("change", [{"where": {"everyone": True}}, {"name": "Loyal buyers"}, {"description": "They come back"}])
def test_the_second_write_of_the_same_revision_is_refused(change: dict[str, Any]) -> None:
    world = World()
    seen = world.commands.define(SEGMENTS, AUTHOR, BUYERS).revision
    newer = world.commands.revise(SEGMENTS, AUTHOR, "buyers", {**BUYERS, **change}, if_match=seen).revision
    assert newer > seen
    with pytest.raises(VersionConflict) as conflict:
        world.commands.revise(SEGMENTS, AUTHOR, "buyers", {**BUYERS, "name": "Others"}, if_match=seen)
    assert conflict.value.revision == newer
    for turn in (world.commands.archive, world.commands.pause, world.commands.resume):
        with pytest.raises(VersionConflict):
            turn(SEGMENTS, AUTHOR, "buyers", seen)


def test_every_change_moves_the_revision_and_only_a_new_meaning_the_version() -> None:
    world = World()
    commands = world.commands
    seen = [commands.define(SEGMENTS, AUTHOR, BUYERS)]
    seen.append(commands.revise(SEGMENTS, AUTHOR, "buyers", {**BUYERS, "name": "Loyal"}, None))
    seen.append(commands.pause(SEGMENTS, AUTHOR, "buyers", None))
    seen.append(commands.resume(SEGMENTS, AUTHOR, "buyers", None))
    seen.append(commands.revise(SEGMENTS, AUTHOR, "buyers", {**BUYERS, "where": {"everyone": True}}, None))
    assert [one.version for one in seen] == [1, 1, 1, 1, 2]
    assert sorted({one.revision for one in seen}) == [one.revision for one in seen]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version", 2), ("version", "1"), ("revision", 5), ("status", "paused"), ("status", 7), ("created_at", "2020-01-01"),
        ("updated_at", "2020-01-01"),
    ],
)  # fmt: skip
def test_a_changed_read_only_field_is_refused_with_its_pointer(field: str, value: object) -> None:
    world = World()
    world.commands.define(SEGMENTS, AUTHOR, BUYERS)
    read = world.queries.definition(SEGMENTS, "acme", "buyers")[1]
    with pytest.raises(ReadOnly) as refused:
        world.commands.revise(SEGMENTS, AUTHOR, "buyers", {**read, "name": "Loyal", field: value}, None)
    assert [(one.pointer, one.code) for one in refused.value.errors] == [(f"/{field}", "read_only")]
    assert len(world.published) == 1


def test_a_webhook_that_was_disabled_can_be_read_edited_and_sent_back() -> None:
    """Delivery disables it in the topic, past the claims: the comparison must use the revision of the read model."""
    world = World()
    made = world.commands.define(WEBHOOKS, AUTHOR, {"key": "shop", "url": "https://shop.example/hook"})
    later = made.recorded_at_micros + 60_000_000
    gone = {**made.document, "disabled": True, "disabled_because": "410"}
    world.reader.shown["acme", "webhook", "shop"] = replace(made, status="disabled", document=gone, recorded_at_micros=later)
    definition, read = world.queries.definition(WEBHOOKS, "acme", "shop")
    assert (read["status"], read["disabled"]) == ("disabled", True)
    with pytest.raises(ReadOnly) as refused:
        world.commands.revise(WEBHOOKS, AUTHOR, "shop", {**read, "disabled": False}, definition.revision)
    assert [one.pointer for one in refused.value.errors] == ["/disabled"]
    again = world.commands.revise(WEBHOOKS, AUTHOR, "shop", {**read, "events": ["entered"]}, definition.revision)
    assert (again.status, again.document["events"], again.document["secret"]) == ("defined", ["entered"], made.document["secret"])
    assert "disabled" not in again.document
    assert again.revision > later


def test_a_race_without_if_match_is_run_again() -> None:
    world = World()
    world.commands.define(SEGMENTS, AUTHOR, BUYERS)
    claim = world.claims.claim
    raced: list[Any] = []

    def claim_after_another_request(change: Any, after: Any) -> bool:
        if not raced:
            raced.append(change)
            other = revised(after, AUTHOR, {**after.document, "where": {"everyone": True}}, SEGMENTS.meaning, world.micros)
            claim(other, after)
            world.publish(other, None)
            world.claims.mark_published(other)
        return claim(change, after)

    world.claims.claim = claim_after_another_request  # type: ignore[method-assign]
    made = world.commands.revise(SEGMENTS, AUTHOR, "buyers", {**BUYERS, "timezone": "Asia/Tokyo"}, None)
    assert made.version == 3
    assert [change.version for change in world.published] == [1, 2, 3]


def test_a_key_is_never_used_again() -> None:
    world = World()
    world.commands.define(SEGMENTS, AUTHOR, BUYERS)
    world.commands.archive(SEGMENTS, AUTHOR, "buyers", None)
    with pytest.raises(DefinitionRefused) as refused:
        world.commands.define(SEGMENTS, AUTHOR, BUYERS)
    assert codes(refused) == [("/key", "key_taken")]


@pytest.mark.parametrize("name", ["Buyers", "Others"])
def test_a_key_that_the_read_model_does_not_show_yet_is_taken_too(name: str) -> None:
    world = World(projector_is_down=True)
    world.commands.define(SEGMENTS, AUTHOR, BUYERS)
    with pytest.raises(DefinitionRefused) as refused:
        world.commands.define(SEGMENTS, AUTHOR, {**BUYERS, "name": name})
    assert codes(refused) == [("/key", "key_taken")]


def test_archiving_twice_publishes_once_and_an_archived_key_stays_archived() -> None:
    world = World()
    world.commands.define(SEGMENTS, AUTHOR, BUYERS)
    for _ in range(2):
        world.commands.archive(SEGMENTS, AUTHOR, "buyers", None)
    assert [change.action for change in world.published] == ["DEFINED", "ARCHIVED"]
    with pytest.raises(Archived):
        world.commands.revise(SEGMENTS, AUTHOR, "buyers", BUYERS, None)


def test_a_used_definition_cannot_be_archived() -> None:
    world = World()
    world.commands.define(TRAITS, AUTHOR, {"key": "ltv", "event": "Order Completed", "measure": {"sum": "revenue"}})
    world.commands.define(SEGMENTS, AUTHOR, BUYERS)
    world.commands.define(SEGMENTS, AUTHOR, segment("vips", {"not": {"segment": "buyers"}}))
    world.commands.define(SEGMENTS, AUTHOR, segment("rich", {"all": [{"trait": "computed.ltv", "op": "gt", "value": 5}]}))
    for kind, key, users in ((SEGMENTS, "buyers", ("vips",)), (TRAITS, "ltv", ("rich",))):
        with pytest.raises(InUse) as in_use:
            world.commands.archive(kind, AUTHOR, key, None)
        assert in_use.value.users == users
    world.commands.archive(SEGMENTS, AUTHOR, "vips", None)
    world.commands.archive(SEGMENTS, AUTHOR, "buyers", None)


def test_references_to_unknown_keys_are_refused() -> None:
    world = World()
    where = {"all": [{"segment": "buyers"}, {"trait": "computed.ltv", "op": "exists"}]}
    with pytest.raises(DefinitionRefused) as refused:
        world.commands.define(SEGMENTS, AUTHOR, segment("vips", where))
    assert codes(refused) == [("/where/all/0/segment", "unknown_segment"), ("/where/all/1/trait", "unknown_trait")]


def test_a_cycle_through_others_is_refused() -> None:
    world = World()
    world.commands.define(SEGMENTS, AUTHOR, BUYERS)
    world.commands.define(SEGMENTS, AUTHOR, segment("vips", {"segment": "buyers"}))
    with pytest.raises(DefinitionRefused) as refused:
        world.commands.revise(SEGMENTS, AUTHOR, "buyers", {**BUYERS, "where": {"segment": "vips"}}, None)
    assert codes(refused) == [("/where/segment", "cycle")]
    assert "vips" in str(refused.value)


def test_a_refused_document_is_not_claimed() -> None:
    world = World()
    with pytest.raises(DefinitionRefused):
        world.commands.define(SEGMENTS, AUTHOR, segment("buyers", {"all": []}))
    assert (world.claims.newest_claims, world.published) == ({}, [])


def test_a_key_in_the_document_must_be_that_of_the_path() -> None:
    world = World()
    world.commands.define(SEGMENTS, AUTHOR, BUYERS)
    with pytest.raises(DefinitionRefused) as refused:
        world.commands.revise(SEGMENTS, AUTHOR, "buyers", {**BUYERS, "key": "sellers"}, None)
    assert codes(refused) == [("/key", "bad_key")]


def test_an_unknown_key_is_not_found() -> None:
    for act in (
        lambda: World().commands.revise(SEGMENTS, AUTHOR, "unknown", BUYERS, None),
        lambda: World().commands.archive(TRAITS, AUTHOR, "unknown", None),
    ):
        with pytest.raises(NotFound):
            act()


def test_the_sweep_publishes_an_abandoned_change_after_its_time_out() -> None:
    world = World(broker_is_down=True)
    with pytest.raises(BrokerUnavailable):
        world.commands.define(SEGMENTS, AUTHOR, BUYERS)
    world.broker_is_down = False
    assert world.commands.finish_abandoned() == 0
    world.micros += ABANDONED_MICROS + 1
    assert world.commands.finish_abandoned() == 1
    assert [change.action for change in world.published] == ["DEFINED"]
    assert world.commands.finish_abandoned() == 0


def test_a_change_waits_until_the_one_before_it_is_published() -> None:
    world = World(broker_is_down=True)
    with pytest.raises(BrokerUnavailable):
        world.commands.define(SEGMENTS, AUTHOR, BUYERS)
    world.broker_is_down = False
    with pytest.raises(ResourceBusy):
        world.commands.revise(SEGMENTS, AUTHOR, "buyers", {**BUYERS, "where": {"everyone": True}}, None)
    world.micros += ABANDONED_MICROS
    world.commands.revise(SEGMENTS, AUTHOR, "buyers", {**BUYERS, "where": {"everyone": True}}, None)
    assert [(change.action, change.version) for change in world.published] == [("DEFINED", 1), ("REVISED", 2)]


def test_a_definition_whose_response_was_lost_can_be_repeated() -> None:
    world = World(broker_is_down=True)
    webhook = {"key": "shop", "url": "https://shop.example/hook"}
    with pytest.raises(BrokerUnavailable):
        world.commands.define(WEBHOOKS, AUTHOR, webhook)
    world.broker_is_down = False
    world.micros += ABANDONED_MICROS + 1
    made = world.commands.define(WEBHOOKS, AUTHOR, webhook)
    assert made.document["secret"] == world.published[0].document["secret"]
    assert len(world.published) == 1


def test_a_revised_webhook_keeps_its_secret_and_is_enabled_again() -> None:
    world = World()
    webhook = {"key": "shop", "url": "https://shop.example/hook"}
    made = world.commands.define(WEBHOOKS, AUTHOR, webhook)
    assert world.plain(WEBHOOKS, made)["secret"].startswith("whsec_")
    disabled = replace(made, status="disabled", document={**made.document, "disabled": True})
    world.reader.shown["acme", "webhook", "shop"] = disabled
    again = world.commands.revise(WEBHOOKS, AUTHOR, "shop", webhook, None)
    assert again.document == made.document
    assert [change.action for change in world.published] == ["DEFINED", "REVISED"]


def _shown(world: World) -> dict[str, Any]:
    read: dict[str, Any] = world.queries.definition(WEBHOOKS, "acme", "shop")[1]
    return read


def test_header_values_are_masked_and_kept_when_the_response_is_sent_back() -> None:
    world = World()
    webhook = {"key": "shop", "url": "https://shop.example/hook", "headers": {"Authorization": "Bearer t"}}
    world.commands.define(WEBHOOKS, AUTHOR, webhook)
    read = _shown(world)
    assert (read["headers"], read["format"], read["batch"]) == ({"Authorization": "***"}, "standard", None)
    assert world.commands.revise(WEBHOOKS, AUTHOR, "shop", read, None).version == 1
    more = {**read, "format": "segment-track", "batch": {"max_items": 50}, "headers": {**read["headers"], "X-Team": "a"}}
    changed = world.commands.revise(WEBHOOKS, AUTHOR, "shop", more, None)
    assert (changed.version, changed.document["format"]) == (2, "segment-track")
    assert world.plain(WEBHOOKS, changed)["headers"] == {"Authorization": "Bearer t", "X-Team": "a"}
    assert changed.document["batch"] == {"max_items": 50, "max_wait_ms": 200}
    with pytest.raises(DefinitionRefused) as refused:
        world.commands.revise(WEBHOOKS, AUTHOR, "shop", {**_shown(world), "headers": {"X-New": "***"}}, None)
    assert [one.pointer for one in refused.value.errors] == ["/headers/X-New"]


def test_a_rate_is_stored_shown_and_a_new_version() -> None:
    world = World()
    webhook = {"key": "shop", "url": "https://shop.example/hook"}
    assert "rate" not in world.commands.define(WEBHOOKS, AUTHOR, {**webhook, "rate": None}).document
    assert _shown(world)["rate"] is None
    limited = world.commands.revise(WEBHOOKS, AUTHOR, "shop", {**_shown(world), "rate": 20}, None)
    assert (limited.version, limited.document["rate"], _shown(world)["rate"]) == (2, 20, 20)
    assert world.commands.revise(WEBHOOKS, AUTHOR, "shop", _shown(world), None).version == 2


def test_a_rotated_secret_leaves_the_previous_one_valid_for_a_day() -> None:
    world = World()
    made = world.commands.define(WEBHOOKS, AUTHOR, {"key": "shop", "url": "https://shop.example/hook"})
    rotated = world.commands.rotate_secret(WEBHOOKS, AUTHOR, "shop", made.revision)
    assert rotated.document["secret"] not in {made.document["secret"], None}
    assert rotated.document["previous_secret"] == made.document["secret"]
    read = _shown(world)
    until_ms = rotated.document["previous_secret_until_ms"]
    assert until_ms - rotated.recorded_at_micros // 1000 in range(86_399_000, 86_400_001)
    assert read["previous_secret_expires_at"] == format_instant(until_ms)
    assert not {"secret", "previous_secret", "previous_secret_until_ms"} & read.keys()
    kept = world.commands.revise(WEBHOOKS, AUTHOR, "shop", {**read, "events": ["entered"]}, None)
    assert (kept.document["previous_secret"], kept.document["previous_secret_until_ms"]) == (made.document["secret"], until_ms)
    first = world.plain(WEBHOOKS, made)["secret"]
    own = world.commands.revise(WEBHOOKS, AUTHOR, "shop", {**_shown(world), "secret": first}, None)
    assert (world.plain(WEBHOOKS, own)["secret"], own.document["previous_secret"]) == (first, rotated.document["secret"])


def test_a_rotation_does_not_enable_a_disabled_webhook() -> None:
    world = World()
    made = world.commands.define(WEBHOOKS, AUTHOR, {"key": "shop", "url": "https://shop.example/hook"})
    gone = {**made.document, "disabled": True, "disabled_because": "410"}
    later = made.recorded_at_micros + 60_000_000
    world.reader.shown["acme", "webhook", "shop"] = replace(made, status="disabled", document=gone, recorded_at_micros=later)
    rotated = world.commands.rotate_secret(WEBHOOKS, AUTHOR, "shop", None)
    assert (rotated.status, rotated.document["disabled"], world.published[-1].action) == ("disabled", True, "DISABLED")
    enabled = world.commands.enable(WEBHOOKS, AUTHOR, "shop", None)
    assert (enabled.status, enabled.document["secret"]) == ("defined", rotated.document["secret"])
    assert not {"disabled", "disabled_because"} & enabled.document.keys()
    assert world.commands.enable(WEBHOOKS, AUTHOR, "shop", None) == enabled


@pytest.mark.parametrize("act", [Commands.rotate_secret, Commands.enable])
def test_an_archived_webhook_is_neither_rotated_nor_enabled(act: Callable[..., Definition]) -> None:
    world = World()
    world.commands.define(WEBHOOKS, AUTHOR, {"key": "shop", "url": "https://shop.example/hook"})
    world.commands.archive(WEBHOOKS, AUTHOR, "shop", None)
    with pytest.raises(Archived):
        act(world.commands, WEBHOOKS, AUTHOR, "shop", None)


def test_records_of_one_key_stay_in_order_when_clocks_differ() -> None:
    world = World()
    world.commands.define(SEGMENTS, AUTHOR, BUYERS)
    behind = archived(world.published[0], AUTHOR, now_micros=5)
    assert behind.recorded_at_micros == world.published[0].recorded_at_micros + 1


def test_true_instead_of_one_is_a_change_of_meaning() -> None:
    """They are equal to Python, and not to the segment language."""
    world = World()
    where = {"trait": "vip", "op": "eq", "value": 1}
    world.commands.define(SEGMENTS, AUTHOR, {**BUYERS, "where": where})
    made = world.commands.revise(SEGMENTS, AUTHOR, "buyers", {**BUYERS, "where": {**where, "value": True}}, None)
    assert made.version == 2
    assert len(world.published) == 2


def test_true_instead_of_one_is_no_repetition() -> None:
    world = World(broker_is_down=True)
    where = {"trait": "vip", "op": "eq", "value": 1}
    with pytest.raises(BrokerUnavailable):
        world.commands.define(SEGMENTS, AUTHOR, {**BUYERS, "where": where})
    world.broker_is_down = False
    world.micros += ABANDONED_MICROS + 1
    with pytest.raises(DefinitionRefused) as refused:
        world.commands.define(SEGMENTS, AUTHOR, {**BUYERS, "where": {**where, "value": True}})
    assert codes(refused) == [("/key", "key_taken")]


def test_a_segment_may_use_a_known_list() -> None:
    world = World()
    with pytest.raises(DefinitionRefused) as refused:
        world.commands.define(SEGMENTS, AUTHOR, segment("vips", {"list": "vips"}))
    assert codes(refused) == [("/where/list", "unknown_list")]
    world.commands.put(LISTS, AUTHOR, "vips", {}, None)
    assert world.commands.define(SEGMENTS, AUTHOR, segment("vips", {"list": "vips"})).version == 1
    with pytest.raises(InUse) as in_use:
        world.commands.archive(LISTS, AUTHOR, "vips", None)
    assert in_use.value.users == ("vips",)
    world.commands.archive(SEGMENTS, AUTHOR, "vips", None)
    world.commands.archive(LISTS, AUTHOR, "vips", None)
    with pytest.raises(DefinitionRefused):
        world.commands.define(SEGMENTS, AUTHOR, segment("others", {"list": "vips"}))


def test_a_segment_without_a_time_zone_gets_its_workspaces() -> None:
    world = World(timezones="other=Asia/Tokyo, acme=Europe/Berlin")
    assert world.commands.define(SEGMENTS, AUTHOR, BUYERS).document["timezone"] == "Europe/Berlin"
    assert world.commands.define(SEGMENTS, AUTHOR, BUYERS | {"key": "own", "timezone": "UTC"}).document["timezone"] == "UTC"
    world.timezones = ""
    again = world.commands.revise(SEGMENTS, AUTHOR, "buyers", BUYERS, None)
    assert (again.version, again.document["timezone"]) == (2, "UTC")


@pytest.mark.parametrize("text", ["Europe/Berlin", "acme=Mars/Olympus", "acme=../etc/passwd", "Acme=UTC", "acme=UTC=UTC"])
def test_invalid_time_zones_prevent_the_start(text: str) -> None:
    with pytest.raises(ValueError, match="expected workspace=zone"):
        Timezones(f"shop=UTC,{text}")
