"""The parts of the harness: armed processes, the endpoint that misbehaves, and the faults at failpoints."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from starling_common.http.outbound.signatures import signed_headers
from starling_common.time.instants import wall_clock_ms
from tests.faults_delivery.failpoints import Arms, armed_line, at, ends_of, missing, points_of, without_arms, zombie
from tests.faults_delivery.run import waves_of
from tests.faults_delivery.sides import ENDING, REFUSING, Endpoint, Manner
from tests.faults_platform.schedule import Fault

SECRET = "whsec_QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY="
PASSES = "import os, signal; print(os.environ.get('STARLING_FAILPOINT')); os.kill(os.getpid(), signal.SIGKILL)"


def run(part: str) -> tuple[str, int, int]:
    """Output, exit code and id of a process of a part that kills itself."""
    environment = {**os.environ, "STARLING_INSTANCE_ID": part, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen([sys.executable, "-c", PASSES], env=environment, stdout=subprocess.PIPE, text=True)
    output, _ = process.communicate(timeout=60)
    return output.strip(), process.returncode, process.pid


def test_each_process_of_a_part_takes_one_failpoint_and_notes_its_end(tmp_path: Path) -> None:
    arms = Arms(tmp_path / "arms")
    assert (arms.reached("messenger-0"), arms.armed("messenger-0")) == ([], None)
    with arms.inherited():
        arms.set("messenger-0", ["after_fold", zombie("after_store")])
        found = [run("messenger-0"), run("broadcaster"), run("messenger-0"), run("messenger-0")]
        assert "FAULTS_ARMING" not in without_arms(os.environ)
    assert "FAULTS_ARMING" not in os.environ
    assert [output for output, _, _ in found] == ["after_fold:1", "None", "after_store:1:stop", "None"]
    assert {code for _, code, _ in found} == {-signal.SIGKILL}
    assert arms.reached("messenger-0") == [("after_fold:1", found[0][2]), ("after_store:1:stop", found[2][2])]
    assert arms.armed("messenger-0") == found[2][2]
    assert arms.reached("broadcaster") == []


def test_a_fault_at_failpoints_names_them_in_order() -> None:
    fault = at("broadcaster", "after_read", zombie("before_commit"))
    assert str(fault) == "at after_read+before_commit:stop broadcaster"
    assert points_of(fault) == ("after_read", "before_commit:stop")
    assert [armed_line(point) for point in points_of(fault)] == ["after_read:1", "before_commit:1:stop"]
    assert ends_of(fault) == 5
    assert (points_of(Fault("kill", ("kafka",))), ends_of(Fault("kill", ("kafka",)))) == ((), 1)


def test_failpoints_that_were_not_reached_come_once_more_part_by_part() -> None:
    faults = [at("m", "a"), at("d", "b", zombie("b")), Fault("kill", ("m",)), at("m", "c"), at("m", "a")]
    assert missing(faults, {("d", "b")}) == [at("m", "a", "c"), at("d", zombie("b"))]
    assert missing(faults, {("m", "a"), ("m", "c"), ("d", "b"), ("d", zombie("b"))}) == []


@pytest.mark.parametrize("faults", [6, 20, 40, 110])
def test_every_number_of_faults_ends_with_the_broadcast_the_delays_and_the_people_who_unsubscribe(faults: int) -> None:
    waves = waves_of(3, faults)
    assert sum(len(wave.faults) for wave in waves) == faults
    assert [wave.host.parts for wave in waves[-3:]] == [("broadcaster",), ("messenger-0",), ("tracker",)]


def test_the_long_run_passes_each_failpoint_of_each_process_of_delivery() -> None:
    found = {(fault.parts[0], point) for wave in waves_of(3, 110) for fault in wave.faults for point in points_of(fault)}
    of_part = {part: {point for one, point in found if one == part} for part, _ in found}
    assert of_part["broadcaster"] == {"after_start", "after_read", "before_commit", "after_commit", "before_commit:stop"}
    assert of_part["delivery-email-0"] == {"after_sending", "in_send", "after_send", "before_outcome", "after_sending:stop"}
    assert of_part["messenger-0"] == {
        "after_fold", "after_timers", "after_produce", "after_commit", "after_store", "mid_flush", "after_flush", "after_restore",
        "after_fold:stop", "after_produce:stop",
    }  # fmt: skip


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint(SECRET, REFUSING, ENDING)
    yield made
    made.close()


def send(endpoint: Endpoint, known: str, secret: str = SECRET, **more: float) -> httpx.Response:
    headers = signed_headers([secret], known, "{}", wall_clock_ms())
    return httpx.post(endpoint.url, content="{}", headers=headers, trust_env=False, timeout=more.get("timeout", 10))


def test_an_endpoint_refuses_some_messages_once_and_keeps_every_arrival(endpoint: Endpoint) -> None:
    expected = {Manner.BUSY: 503, Manner.ELSEWHERE: 302, Manner.TOO_MANY: 429}
    for number, manner in enumerate(REFUSING):
        known = f"{number}-0"
        if manner in expected:
            assert send(endpoint, known).status_code == expected[manner]
        else:
            with pytest.raises(httpx.ReadTimeout):
                send(endpoint, known, timeout=0.3)
        assert send(endpoint, known).status_code == 204
    assert set(endpoint.arrived.values()) == {2}
    assert {manner for manner in REFUSING if not endpoint.answered[manner]} == set()
    assert send(endpoint, "7-f").status_code == 204


def test_an_endpoint_that_is_gone_answers_every_request_with_410() -> None:
    gone = Endpoint(SECRET, always=Manner.GONE)
    assert [send(gone, known).status_code for known in ("1-0", "1-0", "2-2", "7-f")] == [410] * 4
    assert gone.arrived == {"1-0": 2, "2-2": 1, "7-f": 1}
    gone.close()


def test_an_endpoint_ends_some_messages_with_a_gigabyte_and_a_dripping_body(endpoint: Endpoint) -> None:
    for known in ("2-2", "3-2"):
        headers = signed_headers([SECRET], known, "{}", wall_clock_ms())
        with httpx.stream("POST", endpoint.url, content="{}", headers=headers, trust_env=False) as response:
            assert response.status_code == 200
            first = next(response.iter_raw())
            assert first
    deadline = time.monotonic() + 30
    while not endpoint.flooded and time.monotonic() < deadline:
        time.sleep(0.05)  # sleep: until the endpoint notices that its long answer is read no more
    assert 0 < endpoint.flooded < 2**26


def test_a_forged_message_and_a_followed_redirect_are_counted(endpoint: Endpoint) -> None:
    other = "whsec_" + "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFB"
    assert send(endpoint, "1-f", other).status_code == 401
    assert (endpoint.forged, endpoint.strayed, endpoint.arrived.total()) == (1, 0, 0)
    headers = signed_headers([SECRET], "5-0", "{}", wall_clock_ms())
    elsewhere = endpoint.url.replace("/hook", "/elsewhere")
    assert httpx.get(elsewhere, trust_env=False).status_code == 404
    assert httpx.post(elsewhere, content="{}", headers=headers, trust_env=False).status_code == 404
    assert endpoint.strayed == 2
