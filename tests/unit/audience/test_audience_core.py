"""The pure parts: definitions, consent, positions, the circuit, and changes from the present state."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from starling_audience.changes import change_of, traits_of
from starling_audience.consent import Consent, fold_consent
from starling_audience.definitions import fold_definition
from starling_audience.following.circuit import Circuit
from starling_audience.following.present import after_consent, after_replay
from starling_audience.positions import Committed, Ends, Plan, metadata_of, plan_of
from starling_audience.stores.read_model import KnownUser, Membership
from starling_common.kafka.topics import AUDIENCE_RETRY, CONSENT, MEMBERSHIP, MEMBERSHIP_STATE
from starling_common.outcome import Refused
from starling_common.security.sealing import Place, Sealer, parse_keys
from tests.unit.audience.making import BRAZE, EVERY, HTTP, META, definition, definitions, target


def sealer() -> Sealer:
    return Sealer(parse_keys("k=" + "QUFB" * 10 + "QUE=", "test"))


def test_a_target_is_followed_until_it_is_disabled_or_archived() -> None:
    first = definition(META)
    assert set(definitions(first).wanted()) == {("acme", "ads")}
    disabled = definition({**META, "disabled": True, "disabled_because": "401"}, action="DISABLED")
    assert not definitions(first, disabled).wanted()
    assert set(definitions(first, disabled, definition(META, action="REVISED")).wanted()) == {("acme", "ads")}
    assert not definitions(first, definition(META, action="ARCHIVED")).targets


def test_other_channels_and_kinds_are_ignored() -> None:
    sms = definition({"channel": "sms"})
    assert not definitions(sms, definition({"where": {}}, kind="segment")).targets


def test_a_document_that_is_no_target_is_refused() -> None:
    found = fold_definition(definitions(), definition({"channel": "audience", "adapter": "braze"}))
    assert isinstance(found, Refused)
    assert found.code == "definition_refused"


@pytest.mark.parametrize(("document", "path"), [(BRAZE, ("api_key",)), (HTTP, ("headers", "X-Token"))])
def test_secrets_are_decrypted_at_their_place(document: Mapping[str, Any], path: tuple[str, ...]) -> None:
    known, stored = sealer(), json.loads(json.dumps(document))
    inner = stored
    for name in path[:-1]:
        inner = inner[name]
    plain = inner[path[-1]]
    inner[path[-1]] = known.seal(plain, Place("acme", "target/ads", "/".join(path)))
    found = definitions(definition(stored), sealer=known).targets["acme", "ads"]
    assert found.problem is None
    value: Any = found.settings
    for name in path:
        value = value[name]
    assert value == plain
    assert json.dumps(found.document).count("sealed:v1:") == 1


def test_a_target_whose_secret_cannot_be_decrypted_is_a_problem_and_not_followed() -> None:
    sealed = sealer().seal("k", Place("acme", "target/ads", "api_key"))
    found = definitions(definition({**BRAZE, "api_key": sealed}))
    assert not found.wanted()
    assert len(found.problems()) == 1


def test_the_mapping_changes_with_segments_and_policy_and_not_with_credentials() -> None:
    first = target(META)
    assert target({**META, "token": "other"}).mapping == first.mapping
    assert target({**META, "segments": ["vip"], "audiences": {"vip": "11"}}).mapping != first.mapping
    assert target({**META, "audiences": {"vip": "11", "new": "33"}}).mapping != first.mapping
    policy = definition({"key": "policy", "consent": {"audience": "opt_out"}}, kind="policy")
    for order in ((definition(META), policy), (policy, definition(META))):
        found = definitions(*order).targets["acme", "ads"]
        assert found.opt_out
        assert found.mapping != first.mapping
    assert definitions(definition(META), policy, {**policy, "action": "ARCHIVED"}).targets["acme", "ads"] == first


def consent_change(granted: bool, at: int, *, purpose: str | None = None, channel: str = "audience") -> dict[str, Any]:
    return {
        "received_at": 5, "workspace": "acme", "user_id": "a/b", "channel": channel, "purpose": purpose, "granted": granted,
        "source": "api", "changed_at": at, "correlation_id": "c",
    }  # fmt: skip


def allowed(consent: Consent, traits: Mapping[str, Any] | None = None, *, opt_out: bool = False) -> bool:
    return consent.allows("acme", "a/b", traits or {}, opt_out=opt_out)


def test_without_a_statement_the_policy_decides() -> None:
    assert not allowed(Consent())
    assert allowed(Consent(), opt_out=True)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, True),
        (False, False),
        ({"marketing": True}, True),
        ({"marketing": False}, False),
        ({"other": True}, None),
        ("yes", None),
    ],
)
def test_the_trait_beats_the_policy(value: object, expected: bool | None) -> None:
    traits = {"consent": {"audience": value}}
    assert allowed(Consent(), traits) is bool(expected)
    assert allowed(Consent(), traits, opt_out=True) is (expected is not False)


def test_the_newest_explicit_change_beats_the_trait_and_a_refusal_wins_a_tie() -> None:
    known, traits = Consent(), {"consent": {"audience": True}}
    assert known.apply(consent_change(False, 10))
    assert not allowed(known, traits)
    known.apply(consent_change(True, 11, purpose="marketing"))
    assert allowed(known)
    known.apply(consent_change(False, 11))
    assert not allowed(known)
    known.apply(consent_change(True, 5))
    assert not allowed(known), "an older change has no effect"
    assert not known.apply(consent_change(True, 99, channel="email"))
    assert not known.apply(consent_change(True, 99, purpose="research"))


def test_a_tombstone_forgets_the_consent_for_audiences_alone() -> None:
    known = Consent()
    fold_consent(known, b"", consent_change(True, 1))
    fold_consent(known, b"acme/a/b/email/", None)
    assert allowed(known)
    fold_consent(known, b"acme/a/b/audience/", None)
    assert not allowed(known)


ENDS = Ends(
    {MEMBERSHIP_STATE: 0, MEMBERSHIP: 100, CONSENT: 0, AUDIENCE_RETRY: 0}, {MEMBERSHIP: 500, CONSENT: 7, AUDIENCE_RETRY: 3}, 90
)
FOLLOWED = {MEMBERSHIP: Committed(300), CONSENT: Committed(5), AUDIENCE_RETRY: Committed(2)}
FIRST = Plan({MEMBERSHIP_STATE: 0, MEMBERSHIP: 500, CONSENT: 7, AUDIENCE_RETRY: 3}, 90, is_new=True)


def test_a_new_target_reads_the_state_and_follows_from_the_ends() -> None:
    assert plan_of({}, ENDS, "m") == FIRST
    assert plan_of(dict.fromkeys(ENDS.first, Committed(-1001)), ENDS, "m") == FIRST


def test_a_first_sync_goes_on_where_it_stopped() -> None:
    known = {**FOLLOWED, MEMBERSHIP_STATE: Committed(40, metadata_of("m", is_done=False))}
    assert plan_of(known, ENDS, "m") == Plan(
        {MEMBERSHIP_STATE: 40, MEMBERSHIP: 300, CONSENT: 5, AUDIENCE_RETRY: 2}, 90, is_new=False
    )


def test_after_the_first_sync_the_feed_is_followed() -> None:
    known = {**FOLLOWED, MEMBERSHIP_STATE: Committed(90, metadata_of("m", is_done=True))}
    assert plan_of(known, ENDS, "m").until is None
    assert plan_of(known, ENDS, "other") == FIRST, "another mapping begins a first sync"
    lost = {**known, MEMBERSHIP: Committed(99)}
    assert plan_of(lost, ENDS, "m") == FIRST, "changes have expired"
    assert plan_of({**known, MEMBERSHIP_STATE: Committed(90, "no json")}, ENDS, "m") == FIRST


def test_the_circuit_opens_after_five_failures_in_a_row_and_closes_after_a_success() -> None:
    circuit = Circuit()
    waits = [circuit.failed(share=lambda: 0.0) for _ in range(8)]
    assert waits == [1, 2, 4, 8, 30, 60, 120, 240]
    states = [circuit.is_open]
    assert max(circuit.failed(share=lambda: 0.0) for _ in range(9)) == 600
    circuit.succeeded()
    assert [*states, circuit.is_open] == [True, False]
    assert circuit.failed(share=lambda: 1.0) == pytest.approx(1.2)


def test_the_circuit_opens_after_ten_of_twenty_failures() -> None:
    circuit = Circuit()
    for _ in range(9):
        circuit.failed()
        circuit.succeeded()
    states = [circuit.is_open]
    circuit.failed()
    assert [*states, circuit.is_open] == [False, True]


def test_a_retry_after_is_the_least_wait_and_at_most_an_hour() -> None:
    assert Circuit().failed(120, lambda: 0.0) == 120
    assert Circuit().failed(1_000_000, lambda: 0.0) == 3_600


def membership(status: str, sequence: int = 1, traits: str = "{}") -> dict[str, Any]:
    return {
        "user_id": "ada", "segment_key": "vip", "status": status, "sequence": sequence, "effective_at": 7, "received_at": 8_000,
        "event_id": "e", "correlation_id": "c", "traits": traits,
    }  # fmt: skip


def test_a_change_without_consent_is_a_removal_with_its_reason() -> None:
    record = membership("ENTERED", traits='{"email": "Ada@example.com"}')
    found = change_of(record, traits_of(record), is_allowed=False, is_reported=True)
    assert (found.is_member, found.reason, found.email) == (False, "no_consent", "ada@example.com")
    left = change_of(membership("EXITED"), {}, is_allowed=False, is_reported=True)
    assert (left.is_member, left.reason) == (False, None)
    assert traits_of(membership("ENTERED", traits="[]")) == {}
    assert traits_of(membership("ENTERED", traits="no")) == {}


KNOWN = KnownUser({"email": "ada@example.com"}, {"vip": Membership(True, 3, 9)})


def test_a_refusal_removes_from_every_audience() -> None:
    found = list(after_consent(target(META), consent_change(False, 10), KNOWN, lambda _user, _traits: False))
    assert [(one.segment, one.is_member, one.overrides, one.reason, one.is_reported) for one in found] == [
        ("new", False, True, None, False),
        ("vip", False, True, "no_consent", True),
    ]
    assert found[0].event_id != found[1].event_id
    assert found[0].received_at == 5


def test_consent_adds_to_the_audiences_of_present_segments() -> None:
    found = list(after_consent(target(META), consent_change(True, 10), KNOWN, lambda _user, _traits: True))
    assert [(one.segment, one.is_member, one.sequence, one.overrides) for one in found] == [("vip", True, 3, False)]


@pytest.mark.parametrize(("sequence", "overtaken"), [(3, False), (2, True), (4, False)])
def test_a_replay_is_overtaken_by_a_newer_sequence(sequence: int, overtaken: bool) -> None:
    request = {
        "user_id": "ada", "segment_key": "vip", "sequence": sequence, "delivery_id": "d", "attempt": 1, "received_at": 5,
        "correlation_id": "c",
    }  # fmt: skip
    change, found = after_replay(target(META), request, KNOWN, lambda _user, _traits: True)
    assert found is overtaken
    assert (change.is_member, change.delivery_id, change.attempt) == (True, "d", 2)
    assert after_replay(target(META), {**request, "segment_key": "gone"}, KNOWN, lambda _user, _traits: True)[1]


@pytest.mark.parametrize("document", EVERY, ids=lambda one: one["adapter"])
def test_every_adapter_has_a_target(document: Mapping[str, Any]) -> None:
    assert target(document).segments == frozenset(document["segments"])
