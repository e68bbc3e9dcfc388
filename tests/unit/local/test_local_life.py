from dataclasses import replace

import pytest

from starling_local.stack.parts.part import MOST_SILENT_SECONDS, ExitProbe, HttpProbe, Part
from starling_local.stack.supervision.life import (
    HEALTHY_AFTER_SECONDS,
    LONGEST_WAIT_SECONDS,
    MOST_FAILED_CHECKS,
    MOST_START_SECONDS,
    Life,
    Phase,
    checked,
    delay_seconds,
    due,
    ending,
    exited,
    hang,
    probed,
    started,
    waited,
)

SERVER = Part(name="server", command=("true",), probe=HttpProbe("http://127.0.0.1:1/"))
STEP = Part(name="step", command=("true",), probe=ExitProbe())


def crash(life: Life, now: float) -> Life:
    return exited(started(life, now), SERVER, 1, now)


def test_the_delay_doubles_from_half_a_second_to_thirty() -> None:
    assert [delay_seconds(n) for n in range(1, 9)] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert delay_seconds(10_000) == 30.0


def test_each_crash_in_a_row_waits_longer() -> None:
    first = crash(Life(), 100.0)
    second = crash(first, 101.0)
    assert (first.phase, first.retry_at) == (Phase.BACKOFF, 100.5)
    assert second.retry_at == 102.0


def test_a_part_that_was_healthy_for_long_starts_again_at_once() -> None:
    tired = replace(Life(), failures=6)
    ready = probed(started(tired, 0.0), ok=True, now=10.0)
    assert exited(ready, SERVER, 1, 10.0 + HEALTHY_AFTER_SECONDS).retry_at == 10.0 + HEALTHY_AFTER_SECONDS + 0.5


def test_a_part_that_was_ready_for_a_moment_only_goes_on_waiting_longer() -> None:
    tired = replace(Life(), failures=6)
    ready = probed(started(tired, 0.0), ok=True, now=10.0)
    assert exited(ready, SERVER, 1, 11.0).retry_at == 41.0


def test_a_step_that_ends_well_is_done_and_never_starts_again() -> None:
    done = exited(started(Life(), 0.0), STEP, 0, 1.0)
    assert done.phase is Phase.DONE
    assert due([STEP], {"step": done}, 1e9) == []


def test_a_step_that_fails_is_tried_again() -> None:
    failed = exited(started(Life(), 0.0), STEP, 1, 1.0)
    assert due([STEP], {"step": failed}, 1.4) == []
    assert due([STEP], {"step": failed}, 1.5) == [STEP]


def test_a_server_that_ends_with_zero_has_crashed_too() -> None:
    assert exited(started(Life(), 0.0), SERVER, 0, 1.0).phase is Phase.BACKOFF


def test_a_part_waits_for_all_it_depends_on() -> None:
    user = replace(SERVER, name="user", depends_on=("server", "step"))
    ready, done = Life(phase=Phase.READY), Life(phase=Phase.DONE)
    assert due([user], {"user": Life(), "server": ready, "step": Life()}, 0.0) == []
    assert due([user], {"user": Life(), "server": ready, "step": done}, 0.0) == [user]


def test_a_crashed_part_starts_again_even_while_its_store_is_away() -> None:
    user = replace(SERVER, name="user", depends_on=("server",))
    lives = {"user": crash(Life(), 0.0), "server": Life(phase=Phase.UNREADY)}
    assert due([user], lives, 10.0) == [user]


def test_losing_readiness_is_shown_and_regained() -> None:
    ready = probed(started(Life(), 0.0), ok=True, now=1.0)
    lost = probed(ready, ok=False, now=2.0)
    assert (lost.phase, probed(lost, ok=True, now=3.0).phase) == (Phase.UNREADY, Phase.READY)


def test_not_ready_yet_is_not_unready() -> None:
    assert probed(started(Life(), 0.0), ok=False, now=1.0).phase is Phase.STARTING


@pytest.mark.parametrize(("code", "text"), [(1, "ended with exit code 1"), (-9, "killed by signal 9")])
def test_the_message_states_the_exit_code(code: int, text: str) -> None:
    assert exited(started(Life(), 0.0), SERVER, code, 1.0).message == f"{text}; starts again in 0.5 s"


def test_only_starts_after_the_first_are_restarts() -> None:
    life = started(Life(), 0.0)
    assert life.restarts == 0
    assert started(exited(life, SERVER, 1, 1.0), 2.0).restarts == 1


def silent(life: Life, seconds: float) -> Life:
    for _ in range(int(seconds)):
        life = waited(life, 1.0)
    return life


def failing(life: Life, checks: int) -> Life:
    for _ in range(checks):
        life = checked(life, "503 batches: none")
    return life


def test_a_part_hangs_after_consecutive_failed_checks() -> None:
    almost = failing(started(Life(), 0.0), MOST_FAILED_CHECKS - 1)
    assert hang(almost, SERVER) is None
    assert hang(failing(checked(almost, None), MOST_FAILED_CHECKS - 1), SERVER) is None
    assert hang(checked(almost, "503 batches: none"), SERVER) == "failed 3 liveness checks: 503 batches: none"


def test_a_part_hangs_when_it_answers_no_check_for_long() -> None:
    answered = checked(started(Life(), 0.0), None)
    assert hang(silent(answered, MOST_SILENT_SECONDS - 1), SERVER) is None
    assert hang(silent(checked(silent(answered, MOST_SILENT_SECONDS - 1), None), MOST_SILENT_SECONDS - 1), SERVER) is None
    assert hang(silent(answered, MOST_SILENT_SECONDS), SERVER) == "answered no liveness check for 30 s"


def test_a_part_has_longer_until_its_first_answer() -> None:
    life = started(Life(), 0.0)
    assert hang(silent(life, MOST_START_SECONDS - 1), SERVER) is None
    assert hang(silent(life, MOST_START_SECONDS), SERVER) is not None


def test_a_part_that_is_ready_has_answered_and_the_time_begins_again() -> None:
    ready = probed(silent(started(Life(), 0.0), 29), ok=True, now=29.0)
    assert hang(silent(ready, MOST_SILENT_SECONDS - 1), SERVER) is None
    assert hang(silent(ready, MOST_SILENT_SECONDS), SERVER) == "answered no liveness check for 30 s"


def test_a_supervisor_that_was_stopped_itself_counts_little_of_that_time() -> None:
    assert waited(checked(started(Life(), 0.0), None), 75.0).silent_seconds == LONGEST_WAIT_SECONDS


def test_a_restart_forgets_the_checks_of_the_former_process() -> None:
    life = ending(silent(failing(started(Life(), 0.0), 2), 40), "answered nothing", 50.0)
    again = started(exited(life, SERVER, -9, 60.0), 60.5)
    assert (again.silent_seconds, again.check_failures, again.answered, again.restarts) == (0.0, 0, False, 1)


def test_a_part_that_is_being_ended_is_not_probed_and_keeps_the_reason() -> None:
    life = ending(probed(started(Life(), 0.0), ok=True, now=1.0), "answered nothing", 9.0)
    assert probed(life, ok=True, now=10.0) is life
    ended = exited(life, SERVER, -9, 19.0)
    assert (ended.message, ended.last_end) == ("answered nothing; starts again in 0.5 s", "answered nothing")


def test_a_part_that_was_healthy_for_long_and_hangs_starts_again_at_once() -> None:
    ready = probed(started(replace(Life(), failures=6), 0.0), ok=True, now=0.0)
    unready = probed(ready, ok=False, now=HEALTHY_AFTER_SECONDS)
    assert exited(ending(unready, "hangs", 90.0), SERVER, -9, 100.0).retry_at == 100.5


def test_a_part_can_have_a_longer_limit_of_silence() -> None:
    slow, life = replace(SERVER, most_silent_seconds=90.0), silent(checked(started(Life(), 0.0), None), 89)
    assert hang(life, slow) is None
    assert hang(waited(life, 1.0), slow) == "answered no liveness check for 90 s"
