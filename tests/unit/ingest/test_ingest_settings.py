"""What an operator may turn, and what is refused at start."""

import pytest
from pydantic import ValidationError

from starling_ingest.settings import Settings

ENVIRONMENT = {
    "STARLING_KAFKA__BROKERS": "k:9092",
    "STARLING_REGISTRY__URL": "http://r",
    "STARLING_HTTP__PORT": "8080",
    "STARLING_INSTANCE_ID": "ingest-0",
    "STARLING_WRITE_KEYS": "key=workspace, a=b=other_1,",
}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_write_keys_are_pairs(environment: pytest.MonkeyPatch) -> None:
    assert Settings().write_keys == {"key": "workspace", "a=b": "other_1"}


@pytest.mark.parametrize("keys", ["", "key", "=workspace", "key=", "key=Big", "key=a/b", "key=a,key=b", "key=1a"])
def test_a_list_that_is_none_is_refused(environment: pytest.MonkeyPatch, keys: str) -> None:
    environment.setenv("STARLING_WRITE_KEYS", keys)
    with pytest.raises(ValidationError, match="write_keys"):
        Settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RATE_BURST_ITEMS", "2499"),
        ("RATE_ITEMS_PER_SECOND", "0"),
        ("QUEUE_HIGH_WATER_RECORDS", "10"),
        ("ACK_TIMEOUT_MS", "1"),
        ("HTTP__PORT", "70000"),
    ],
)
def test_bounds(environment: pytest.MonkeyPatch, name: str, value: str) -> None:
    environment.setenv(f"STARLING_{name}", value)
    with pytest.raises(ValidationError):
        Settings()
