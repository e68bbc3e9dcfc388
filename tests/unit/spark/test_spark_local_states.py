"""Copies of users' states: what they return, whose version counts, a task that fails or is repeated, and a broken disk."""

import multiprocessing
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from starling_spark.jobs.profiles.query.local_states import UNUSED_SECONDS, CopiedStates, LocalStates
from starling_spark.session.worker_files import shared_files, worker_files

STATES: dict[str, bytes | None] = {"w/anna": b"one", "w/ben": os.urandom(1_700), "w/Größe": b"", "w/" + "ü" * 500: b"long"}


class InMemory:
    """The states of a bucket in Spark: what is written counts from `commit` on. `reads`: the users that were asked for."""

    def __init__(self) -> None:
        self.committed: dict[str, bytes] = {}
        self.states: dict[str, bytes] = {}
        self.reads: list[str] = []

    def read(self, keys: Sequence[str]) -> list[bytes | None]:
        self.reads += keys
        return [self.states.get(key) for key in keys]

    def write(self, states: Mapping[str, bytes | None]) -> None:
        for key, state in states.items():
            if state is None:
                self.states.pop(key, None)
            else:
                self.states[key] = state

    def commit(self) -> None:
        self.committed = dict(self.states)

    def fail(self) -> None:
        self.states = dict(self.committed)


def sealed(directory: Path, version: str, states: Mapping[str, bytes | None], megabytes: int = 10) -> str:
    """Write states as a task that succeeds; return the version."""
    copy = LocalStates(directory, version, megabytes)
    copy.write(states)
    version = copy.seal()
    copy.close()
    return version


def read(directory: Path, version: str, users: Sequence[str]) -> list[bytes | None]:
    copy = LocalStates(directory, version, 10)
    found = copy.read(users)
    copy.close()
    return found


def test_a_copy_returns_what_was_written(tmp_path: Path) -> None:
    version = sealed(tmp_path / "copy", "", STATES)
    assert read(tmp_path / "copy", version, [*STATES, "w/unknown"]) == [*STATES.values(), None]
    version = sealed(tmp_path / "copy", version, {"w/anna": None, "w/ben": b"two"})
    assert read(tmp_path / "copy", version, list(STATES)) == [None, b"two", b"", b"long"]


def test_a_task_reads_what_it_has_written(tmp_path: Path) -> None:
    copy = LocalStates(tmp_path, "", 10)
    copy.write(STATES)
    assert copy.read(list(STATES)) == list(STATES.values())
    copy.close()


def test_a_copy_of_another_version_is_not_read_and_emptied(tmp_path: Path) -> None:
    version = sealed(tmp_path, "", STATES)
    assert read(tmp_path, "another", list(STATES)) == [None] * 4
    assert read(tmp_path, "", list(STATES)) == [None] * 4
    newer = sealed(tmp_path, "another", {"w/anna": b"new"})
    assert read(tmp_path, newer, list(STATES)) == [b"new", None, None, None]
    assert read(tmp_path, version, list(STATES)) == [None] * 4


def test_what_a_failed_task_has_written_is_not_read(tmp_path: Path) -> None:
    version = sealed(tmp_path, "", STATES)
    failed = LocalStates(tmp_path, version, 10)
    failed.write({"w/anna": b"of the failed task"})
    failed.close()
    assert read(tmp_path, version, ["w/anna", "w/ben"]) == [None, None]


def test_a_task_that_failed_after_its_seal_is_not_read(tmp_path: Path) -> None:
    """Spark did not commit the version."""
    version = sealed(tmp_path, "", STATES)
    sealed(tmp_path, version, {"w/anna": b"of the failed task"})
    assert read(tmp_path, version, ["w/anna", "w/ben"]) == [None, None]


def test_a_task_that_is_repeated_while_it_still_runs(tmp_path: Path) -> None:
    """Neither reads what the other has written, and only the version that Spark commits counts."""
    version = sealed(tmp_path, "", STATES)
    repeated = LocalStates(tmp_path, version, 10)
    assert repeated.read(["w/anna"]) == [b"one"]
    # LMDB allows one handle in a process.
    zombie = multiprocessing.get_context("spawn").Process(target=sealed, args=(tmp_path, version, {"w/anna": b"zombie"}))
    zombie.start()
    zombie.join(60)
    assert zombie.exitcode == 0
    assert repeated.read(["w/anna", "w/ben"]) == [None, None]
    repeated.write({"w/ben": b"two"})
    assert repeated.read(["w/anna", "w/ben"]) == [None, b"two"]
    last = repeated.seal()
    repeated.close()
    assert read(tmp_path, last, ["w/anna", "w/ben"]) == [None, b"two"]


def test_a_full_copy_is_emptied(tmp_path: Path) -> None:
    directory = tmp_path / "copy"
    version = sealed(directory, "", {"w/anna": b"one"}, megabytes=1)
    copy = LocalStates(directory, version, 1)
    with capture_logs() as logged:
        copy.write({f"w/{number}": os.urandom(10_000) for number in range(200)})
    assert ["STARLING_PROFILES_COPY_MEGABYTES" in one["cure"] for one in logged] == [True]
    assert (copy.read(["w/anna"]), copy.seal(), directory.exists()) == ([None], "", False)
    copy.write({"w/anna": b"unnoticed"})
    copy.close()
    version = sealed(directory, "", {"w/anna": b"two"}, megabytes=1)
    assert read(directory, version, ["w/anna"]) == [b"two"]


def test_a_new_copy_removes_those_that_are_not_used(tmp_path: Path) -> None:
    """The buckets of the others are elsewhere, or their query has ended."""
    versions = {name: sealed(tmp_path / name, "", {"w/anna": name.encode()}) for name in ("query-0", "query-1", "former-0")}
    for name in ("query-1", "former-0"):
        changed_at = (tmp_path / name / "data.mdb").stat().st_mtime - UNUSED_SECONDS - 1
        os.utime(tmp_path / name / "data.mdb", (changed_at, changed_at))
    assert read(tmp_path / "query-0", versions["query-0"], ["w/anna"]) == [b"query-0"]
    assert len(list(tmp_path.iterdir())) == 3
    sealed(tmp_path / "query-2", "", {"w/anna": b"new"})
    assert sorted(one.name for one in tmp_path.iterdir()) == ["query-0", "query-2"]
    assert read(tmp_path / "query-0", versions["query-0"], ["w/anna"]) == [b"query-0"]


def test_a_broken_file_is_replaced(tmp_path: Path) -> None:
    directory = tmp_path / "copy"
    version = sealed(directory, "", STATES)
    (directory / "data.mdb").write_bytes(b"\xff" * 8_192)
    with capture_logs() as logged:
        assert read(directory, version, ["w/anna"]) == [None]
    assert [one["event"] for one in logged] == ["local_states_failed"]
    version = sealed(directory, version, STATES)
    assert read(directory, version, ["w/anna"]) == [b"one"]


def test_a_directory_that_cannot_be_made_leaves_the_states_to_spark(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    copy = LocalStates(tmp_path / "file" / "copy", "", 10)
    states = InMemory()
    copied = CopiedStates(states, copy)
    copied.write(STATES)
    assert copied.read(list(STATES)) == list(STATES.values())
    assert copy.seal() == ""


def test_only_users_without_a_copy_are_read_from_spark(tmp_path: Path) -> None:
    states = InMemory()
    states.write({"w/carl": b"three"})
    copy = LocalStates(tmp_path, "", 10)
    copied = CopiedStates(states, copy)
    copied.write(STATES)
    assert copied.read(["w/anna", "w/carl", "w/unknown"]) == [b"one", b"three", None]
    assert states.reads == ["w/carl", "w/unknown"]
    copy.close()


users = st.sampled_from(["w/a", "w/b", "w/c", "w/d"])
changes = st.dictionaries(users, st.none() | st.binary(max_size=4), max_size=4)
tasks = st.lists(
    st.tuples(st.integers(0, 1), st.lists(changes, max_size=3), st.sampled_from(["ok", "fails", "fails sealed"])), max_size=8
)


@given(tasks)
def test_every_read_equals_the_state_of_spark(
    tmp_path_factory: pytest.TempPathFactory, ran: list[tuple[int, list[dict[str, bytes | None]], str]]
) -> None:
    """Tasks on two executors, some of which fail before or after the seal."""
    executors = [tmp_path_factory.mktemp("executor") for _ in range(2)]
    spark, version = InMemory(), ""
    for executor, written, end in ran:
        copy = LocalStates(executors[executor], version, 10)
        copied = CopiedStates(spark, copy)
        for states in written:
            expected = [spark.states.get(user) for user in ["w/a", "w/b", "w/c", "w/d"]]
            assert copied.read(["w/a", "w/b", "w/c", "w/d"]) == expected
            copied.write(states)
        new = copy.seal() if end != "fails" else ""
        copy.close()
        if end == "ok":
            spark.commit()
            version = new
        else:
            spark.fail()


def test_the_files_of_the_workers_end_with_their_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    monkeypatch.setenv("STARLING_WORKER_FILES", "of another daemon")
    block = shared_files()
    block.__enter__()
    own = worker_files()
    assert own is not None
    assert own.parent == tmp_path
    own.mkdir()
    if not (worker := os.fork()):
        try:
            block.__exit__(None, None, None)
        finally:
            os._exit(0)
    os.waitpid(worker, 0)
    assert own.exists()
    block.__exit__(None, None, None)
    assert list(tmp_path.iterdir()) == []
