"""The real process on the real broker, against a real HTTP server: the mirrors equal the fold of the feed."""

import json
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from starling_audience.failpoints import AFTER_COMMIT, AFTER_SEND, BEFORE_COMMIT, BEFORE_SEND
from starling_common.kafka.topics import DELIVERY_DEFINITIONS
from starling_common.testing import Service, eventually, running
from tests.integration.audience.vendors import Answer, hashed
from tests.integration.audience.world import World
from tests.unit.audience.making import private_key

USERS = [f"user-{number}" for number in range(200)]


def metric(service: Service, name: str, workspace: str, **labels: str) -> float:
    """The value of a metric with these labels; 0 without one."""
    wanted = [f'workspace="{workspace}"', *(f'{label}="{value}"' for label, value in labels.items())]
    text = httpx.get(f"{service.url}/metrics", trust_env=False, timeout=30).text
    found = [line for line in text.splitlines() if line.startswith(f"{name}{{") and all(one in line for one in wanted)]
    return sum(float(line.rpartition(" ")[2]) for line in found)


def is_equal(world: World, key: str, segment: str = "vip") -> bool:
    return world.vendors.audience(f"{key}/{segment}") == world.expected(segment)


def test_a_first_sync_is_followed_by_the_feed(world: World, tmp_path: Path) -> None:
    world.toggle(USERS)
    world.toggle(USERS[:50])
    world.toggle(USERS[:20], "other")
    world.opt_out()
    world.endpoint("crm")
    with running("starling_audience", world.settings(), tmp_path / "log") as service:
        eventually(lambda: is_equal(world, "crm"))
        assert len(world.expected()) == 150
        assert world.vendors.audience("crm/other") == set()
        eventually(lambda: metric(service, "starling_audience_first_sync_partitions", world.workspace) == 0)
        world.toggle(USERS[:10])
        world.toggle(USERS[150:])
        eventually(lambda: is_equal(world, "crm"))
        # A refusal removes at once; without the profile in the read model too.
        world.consent(USERS[100], False, 10)
        eventually(lambda: world.vendors.audience("crm/vip") == world.expected() - {USERS[100]})
        # The consent of the state and of the feed is known to both.
        world.toggle([USERS[100], USERS[101]])
        world.toggle([USERS[100], USERS[101]])
        eventually(lambda: len([one for one in world.reports() if one["user_id"] == USERS[101]]) >= 1)
        eventually(lambda: world.vendors.audience("crm/vip") == world.expected() - {USERS[100]})
        eventually(lambda: any(one["detail"] == "no_consent" for one in world.reports() if one["user_id"] == USERS[100]))
        # A new segment of the target begins a first sync of it.
        world.endpoint("crm", "vip", "other")
        eventually(lambda: is_equal(world, "crm", "other"))
        assert service.stop() == 0
    assert world.vendors.forged == 0
    followed = [one for one in world.reports() if one["outcome"] == "DELIVERED"]
    assert {one["user_id"] for one in followed} <= {*USERS[:10], *USERS[100:102], *USERS[150:]}, "a first sync reports no success"
    assert {(one["channel"], one["target_key"]) for one in world.reports()} == {("audience", "crm")}


def test_refused_credentials_disable_the_target_and_no_other_one(world: World, tmp_path: Path) -> None:
    world.toggle(USERS)
    world.opt_out()
    world.endpoint("crm")
    world.endpoint("gone")
    world.vendors.failing["gone"] = Answer(401)

    def disabled() -> list[dict[str, Any]]:
        found = world.records(DELIVERY_DEFINITIONS)
        return [json.loads(one["document"]) for one in found if one["action"] == "DISABLED"]

    with running("starling_audience", world.settings(), tmp_path / "log") as service:
        eventually(lambda: is_equal(world, "crm"))
        [document] = eventually(disabled)
        assert (document["key"], document["disabled"]) == ("gone", True)
        assert document["disabled_because"] == "the endpoint answered 401"
        eventually(service.is_ready)
        # The administrator corrects it: it begins where it stopped.
        del world.vendors.failing["gone"]
        world.endpoint("gone")
        eventually(lambda: is_equal(world, "gone"))
        assert len(disabled()) == 1


@pytest.mark.long
def test_wherever_the_process_is_killed_the_mirror_equals_the_fold_of_the_feed(world: World, tmp_path: Path) -> None:
    world.toggle(USERS)
    world.opt_out()
    world.endpoint("crm")
    points = (BEFORE_SEND, AFTER_SEND, BEFORE_COMMIT, AFTER_COMMIT, f"{AFTER_SEND}:2", f"{BEFORE_COMMIT}:3")
    for number, failpoint in enumerate(points):
        settings = world.settings(STARLING_FAILPOINT=failpoint)
        with running("starling_audience", settings, tmp_path / "killed.log", ready=False) as service:
            # Changes for the later passages come while the process runs.
            for _ in range(30):
                world.toggle(USERS[number * 20 : number * 20 + 20])
                if service.process.poll() is not None:
                    break
                _wait(service, 4)
            assert service.process.wait(60) == -signal.SIGKILL
    with running("starling_audience", world.settings(), tmp_path / "last.log") as service:
        world.toggle(USERS[:5])
        eventually(lambda: is_equal(world, "crm"))
        eventually(lambda: metric(service, "starling_audience_lag_records", world.workspace) == 0)
    assert world.vendors.forged == 0


def _wait(service: Service, seconds: float) -> None:
    """Wait for the end of a process, at most so long."""
    try:
        eventually(lambda: service.process.poll() is not None, seconds)
    except TimeoutError:
        return


@pytest.mark.long
def test_a_target_that_fails_pauses_alone_and_catches_up(world: World, tmp_path: Path) -> None:
    world.toggle(USERS)
    world.opt_out()
    world.endpoint("crm")
    world.endpoint("slow")
    world.vendors.failing["slow"] = Answer(429, retry_after=2)
    with running("starling_audience", world.settings(), tmp_path / "log") as service:
        eventually(lambda: is_equal(world, "crm"))
        eventually(lambda: metric(service, "starling_audience_paused", world.workspace, target="slow") == 1)
        assert metric(service, "starling_audience_paused", world.workspace, target="crm") == 0
        for status in (500, 503):
            world.vendors.failing["slow"] = Answer(status)
            world.toggle(USERS[:30])
            eventually(lambda: is_equal(world, "crm"))
        assert world.vendors.audience("slow/vip") == set()
        refused = world.vendors.requests["slow"]
        assert 0 < refused < 60, "the pauses grow"
        del world.vendors.failing["slow"]
        eventually(lambda: is_equal(world, "slow"))
        assert world.letters() == []


@pytest.mark.long
def test_an_item_that_is_rejected_becomes_a_dead_letter_which_a_newer_change_supersedes(world: World, tmp_path: Path) -> None:
    world.opt_out()
    world.endpoint("crm")
    world.vendors.rejected.update(USERS[:2])
    with running("starling_audience", world.settings(), tmp_path / "log") as service:
        world.toggle(USERS[:10])
        letters = eventually(lambda: found if len(found := world.letters()) == 2 else None)
        eventually(lambda: world.vendors.audience("crm/vip") == set(USERS[2:10]))
        assert {(one["stage"], one["code"], one["message"]) for one in letters} == {
            ("audience", "rejected", "crm, vip: the user is invalid")
        }
        assert all(b"@example.com" not in one["value"] for one in letters)
        world.vendors.rejected.clear()
        by_user = {one["key"].decode().rpartition("/")[2]: one for one in letters}
        # One user has left since: the exit is sent, and the replayed entry is not.
        world.toggle([USERS[1]])
        for user in USERS[:2]:
            world.store(user, "vip")
            world.replay(by_user[user])
        eventually(lambda: world.vendors.audience("crm/vip") == {USERS[0], *USERS[2:10]})
        eventually(lambda: metric(service, "starling_audience_changes_total", world.workspace, outcome="superseded") == 1)
        reports = eventually(lambda: found if len(found := _outcomes(world, USERS[1])) >= 3 else None)
        assert ("SUPPRESSED", "superseded") in reports
    assert is_equal(world, "crm")


def _outcomes(world: World, user: str) -> list[tuple[str, str | None]]:
    return [(one["outcome"], one["detail"]) for one in world.reports() if one["user_id"] == user]


@pytest.mark.long
def test_each_system_gets_what_it_takes(world: World, tmp_path: Path) -> None:
    url, common = world.vendors.url, {"channel": "audience", "segments": ["vip"]}
    world.toggle(USERS)
    world.toggle(USERS[:40])
    world.toggle(["no-address"], email=None)
    world.opt_out()
    world.define("braze", {**common, "adapter": "braze", "base_url": url, "api_key": "key"})
    world.define("customerio", {**common, "adapter": "customerio", "base_url": url, "site_id": "site", "api_key": "key"})
    world.define("meta", {**common, "adapter": "meta", "base_url": f"{url}/meta", "token": "key", "audiences": {"vip": "m1"}})
    world.define(
        "google",
        {
            **common, "adapter": "google", "base_url": url, "token_url": f"{url}/token", "client_email": "a@b.example",
            "private_key": private_key(), "account_id": "1", "audiences": {"vip": "g1"},
        },
    )  # fmt: skip
    world.vendors.rejected.update({USERS[50], hashed(f"{USERS[50]}@example.com")})

    def found() -> dict[str, set[str]]:
        return {name: world.vendors.audience(name) for name in ("vip", "m1", "g1")}

    def wanted() -> dict[str, set[str]]:
        known = world.expected() - {"no-address"}
        return {
            # Braze and Customer.io write the same attribute here.
            "vip": world.expected() - {USERS[50]},
            "m1": {hashed(user) for user in known},
            "g1": {hashed(f"{user}@example.com") for user in known - {USERS[50]}},
        }

    with running("starling_audience", world.settings(), tmp_path / "log") as service:
        eventually(lambda: found() == wanted())
        world.toggle(USERS[:10])
        world.toggle(USERS[190:])
        eventually(lambda: found() == wanted())
        for target in ("meta", "google"):
            labels = {"target": target, "outcome": "no_identifier"}
            assert metric(service, "starling_audience_changes_total", world.workspace, **labels) == 1
        eventually(lambda: len([one for one in world.letters() if one["code"] == "rejected"]) == 3)
        suppressed = [one["target_key"] for one in world.reports() if one["detail"] == "no_identifier"]
        assert sorted(suppressed) == ["google", "meta"]
    log = (tmp_path / "log").read_text()
    assert "@example.com" not in log
    assert "user-50" not in log


@pytest.mark.long
def test_processes_share_a_target(world: World, tmp_path: Path) -> None:
    world.toggle(USERS)
    world.opt_out()
    world.endpoint("crm")
    with ExitStack() as open_:
        first = open_.enter_context(running("starling_audience", world.settings(), tmp_path / "first.log"))
        open_.enter_context(running("starling_audience", world.settings(), tmp_path / "second.log"))
        eventually(lambda: is_equal(world, "crm"))
        world.toggle(USERS[:60])
        first.kill()
        world.toggle(USERS[40:80])
        eventually(lambda: is_equal(world, "crm"), 180)
