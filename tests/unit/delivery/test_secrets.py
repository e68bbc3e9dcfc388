"""Encrypted secrets of webhooks: opened for an attempt alone; one that cannot be opened stops its webhook only."""

import asyncio
import json
from typing import Any

import pytest

from starling_common.security.sealing import Place, Sealer
from starling_common.time.instants import wall_clock_ms
from starling_delivery.policy import Step
from starling_delivery.targets import Targets
from tests.unit.delivery.making import SECRET, Recorded, Scripted, definition, dispatcher, request, send_all, targets

OLD, NEW = Sealer({"old": b"o" * 32}), Sealer({"new": b"n" * 32})
BOTH = Sealer({"new": b"n" * 32, "old": b"o" * 32})


def sealed(key: str, by: Sealer, **more: Any) -> dict[str, Any]:
    """A definition as the API stores it."""

    def seal(text: str, field: str) -> str:
        return by.seal(text, Place("default", f"webhook/{key}", field))

    headers = {"Authorization": seal("Bearer t", "headers/Authorization")}
    return definition(key, secret=seal(SECRET, "secret"), headers=headers, **more)


def seen(known: Targets, key: str = "hook") -> tuple[tuple[str, ...], dict[str, str]]:
    found = known.find("default", key)
    assert found is not None
    return found.secrets(0), dict(found.headers)


def test_secrets_and_headers_are_opened_and_the_stored_document_stays() -> None:
    record = sealed("hook", OLD)
    known = targets(record, sealer=BOTH)
    assert seen(known) == ((SECRET,), {"Authorization": "Bearer t"})
    found = known.find("default", "hook")
    assert found is not None
    assert found.document == json.loads(record["document"])  # delivery publishes it when the endpoint answers 410
    assert known.problems() == []


def test_a_previous_secret_signs_until_its_end_unless_its_key_is_lost() -> None:
    previous = OLD.seal("whsec_old", Place("default", "webhook/hook", "secret"))
    record = sealed("hook", NEW, previous_secret=previous, previous_secret_until_ms=1)
    assert seen(targets(record, sealer=BOTH))[0] == (SECRET, "whsec_old")
    assert seen(targets(record, sealer=NEW))[0] == (SECRET,)


def test_a_secret_of_another_webhook_is_not_opened() -> None:
    moved = {**sealed("other", OLD), "key": "hook"}
    [problem] = targets(moved, sealer=OLD).problems()
    assert "copied from another place" in problem


def test_a_lost_key_delays_the_messages_of_its_webhook_alone(capsys: pytest.CaptureFixture[str]) -> None:
    known = targets(sealed("lost", OLD), sealed("fine", NEW), definition("plain"), sealer=NEW)
    assert len(known.problems()) == 1
    steps: list[tuple[str, Step]] = []
    channel = Scripted()
    made = [
        request(delivery_id=f"{key}-{n}", target_key=key, first_attempt_at=wall_clock_ms())
        for n in range(3)
        for key in ("lost", "fine", "plain")
    ]
    asyncio.run(send_all(dispatcher(channel, known, Recorded(steps)), made))
    assert sorted(channel.sent) == [f"{key}-{n}" for key in ("fine", "plain") for n in range(3)]
    waiting = [step for name, step in steps if name.startswith("lost")]
    assert {step.outcome for step in waiting} == {"RETRYING"}
    assert all(step.retry is not None and step.retry["attempt"] == 1 and step.postponed for step in waiting)
    detail = waiting[0].detail or ""
    assert "with the key 'old', and this process has only new" in detail
    assert SECRET not in repr(steps) + detail
    assert capsys.readouterr().out.count("secret_unreadable") == 1

    known.apply({**sealed("lost", NEW), "version": 2})  # the secret was stored again
    asyncio.run(send_all(dispatcher(channel, known, Recorded(steps)), made[:1]))
    assert channel.sent[-1] == "lost-0"
    assert known.problems() == []
