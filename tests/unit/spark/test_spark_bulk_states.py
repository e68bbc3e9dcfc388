"""Pipelined access to states: the contract with PySpark's internal client, requests on their way, and failures."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.stateful_processor import MapState

from starling_common.failures import is_of_installation
from starling_spark.jobs.profiles.query.bulk_states import (
    OUTSTANDING,
    BulkStates,
    PipelinedStates,
    PublicStates,
    StateServerFailed,
    bulk_states,
)
from tests.unit.spark.state_server import StateServer

STATES = {"w/anna": b"one", "w/ben": os.urandom(1_700), "w/Größe": b"", "w/carl": os.urandom(100_000)}


def steps(states: BulkStates) -> list[list[bytes | None]]:
    """Write, read, delete and read again."""
    states.write(STATES)
    first = states.read([*STATES, "w/unknown"])
    states.write({"w/anna": None, "w/ben": b"two"})
    return [first, states.read(["w/anna", "w/ben"])]


def test_the_requests_are_byte_for_byte_those_of_the_public_api(tmp_path: Path) -> None:
    """The contract: if PySpark changes its client, the message names the file that depends on it."""
    sent: list[list[bytes]] = []
    kinds: tuple[Callable[[MapState], BulkStates], ...] = (PublicStates, PipelinedStates)
    for number, kind in enumerate(kinds):
        directory = tmp_path / str(number)
        directory.mkdir()
        with StateServer(directory) as server:
            assert steps(kind(server.state())) == [[*STATES.values(), None], [None, b"two"]]
            sent.append(server.requests)
    assert sent[0] == sent[1], "PySpark's client sends other requests: adapt jobs/profiles/query/bulk_states.py to this version"


def test_this_version_of_pyspark_is_pipelined(tmp_path: Path) -> None:
    with StateServer(tmp_path) as server:
        assert isinstance(bulk_states(server.state()), PipelinedStates)


def test_another_internal_client_falls_back_to_the_public_api() -> None:
    state: Any = SimpleNamespace(getValue=lambda key: (bytearray(key[0].encode()),), _mapStateClient=SimpleNamespace())
    states = bulk_states(state)
    assert isinstance(states, PublicStates)
    assert states.read(["w/anna"]) == [b"w/anna"]


@pytest.mark.timeout(60)
def test_requests_are_on_their_way_before_the_first_answer(tmp_path: Path) -> None:
    """The server answers nothing before it has as many requests as may be outstanding."""
    with StateServer(tmp_path, hold=OUTSTANDING) as server:
        states = PipelinedStates(server.state())
        expected = {f"w/u{number}": str(number).encode() for number in range(3 * OUTSTANDING + 1)}
        states.write(expected)
        assert server.entries == expected
        assert states.read(list(expected)) == list(expected.values())
        assert states.read([]) == []


@pytest.mark.timeout(60)
def test_large_states_do_not_block_either_side(tmp_path: Path) -> None:
    """Both directions are larger than the buffers of the socket."""
    with StateServer(tmp_path) as server:
        states = PipelinedStates(server.state())
        expected = {f"w/u{number}": os.urandom(1 << 19) for number in range(OUTSTANDING)}
        states.write(expected)
        assert states.read(list(expected)) == list(expected.values())


def test_a_refused_request_is_a_failure_of_the_installation(tmp_path: Path) -> None:
    with StateServer(tmp_path, fail_at=1) as server, pytest.raises(StateServerFailed, match="answered 1: disk full") as caught:
        PipelinedStates(server.state()).read(["w/anna", "w/ben"])
    assert is_of_installation(caught.value)


def test_a_closed_connection_is_a_failure_of_the_installation(tmp_path: Path) -> None:
    with StateServer(tmp_path, fail_at=0) as server:
        states = PipelinedStates(server.state())
        with pytest.raises(StateServerFailed, match="disk full"):
            states.read(["w/anna"])
        with pytest.raises((StateServerFailed, OSError)) as caught:
            states.read(["w/anna"])
        assert is_of_installation(caught.value)
