"""Ports for services that tests start."""

import socket
from pathlib import Path

import pytest

from starling_common import testing

FIRST_OUTGOING = 32_768
"""The default first port that Linux uses for outgoing connections."""


def test_the_same_port_is_not_given_twice_in_a_row() -> None:
    given = [testing.free_port() for _ in range(20)]
    assert len(set(given)) == len(given)
    assert max(given) < FIRST_OUTGOING


def test_a_port_in_use_is_not_returned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        monkeypatch.setattr(testing, "_PORT_FILE", tmp_path / "last")
        monkeypatch.setattr(testing, "_FIRST_PORT", holder.getsockname()[1] - 1)
        monkeypatch.setattr(testing, "_PORTS", 2)  # the next in turn is the holder's
        with pytest.raises(RuntimeError, match="no free port"):
            testing.free_port()
