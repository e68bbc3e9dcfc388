"""The service that the settings of the environment describe."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from starling_common.kafka.topics import OUTCOMES
from starling_normalizer import wiring
from starling_normalizer.settings import Settings
from starling_normalizer.testing import RECEIVED_MS, key_of, local_codecs, received
from starling_stream.testing import MemoryTask

CODECS = local_codecs()
HOUR_MS = 3_600_000


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    registry = SimpleNamespace(codec=lambda topic, _schema: CODECS[topic])
    catalog = SimpleNamespace(start=lambda: None, stop=lambda: None, find=lambda *_: None, problem=lambda: None)
    monkeypatch.setattr(wiring, "Registry", lambda _url: registry)
    monkeypatch.setattr(wiring, "Catalog", lambda *_: catalog)
    monkeypatch.setattr(wiring, "_counter", lambda _metrics: lambda _topic, _outcome: None)
    required = {"KAFKA__BROKERS": "127.0.0.1:1", "REGISTRY__URL": "http://127.0.0.1:1", "STATE_DIR": str(tmp_path)}
    for name, value in {**required, "INSTANCE_ID": "one", "HTTP__PORT": "1"}.items():
        monkeypatch.setenv(f"STARLING_{name}", value)
    return monkeypatch


@pytest.mark.parametrize(("hours", "second"), [(None, "DUPLICATE"), ("168", "DUPLICATE"), ("167", "ACCEPTED")])
def test_the_duplicates_window_is_a_setting(environment: pytest.MonkeyPatch, hours: str | None, second: str) -> None:
    if hours is not None:
        environment.setenv("STARLING_DUPLICATE_WINDOW_HOURS", hours)
    with wiring.open_service(Settings()) as service:
        task = MemoryTask(service)
        for received_ms in (RECEIVED_MS, RECEIVED_MS + 168 * HOUR_MS):
            record = received("track", {"event": "A"}, received_at=received_ms * 1000)
            task.feed("ingest.track", key_of(record), CODECS["ingest.track"].encode(record))
    outcomes = [CODECS[OUTCOMES].decode(output.value)["outcome"] for output in task.take_outputs(OUTCOMES)]
    assert outcomes == ["ACCEPTED", second]


@pytest.mark.parametrize("hours", ["23", "2161"])
def test_a_window_out_of_bounds_is_refused(environment: pytest.MonkeyPatch, hours: str) -> None:
    environment.setenv("STARLING_DUPLICATE_WINDOW_HOURS", hours)
    with pytest.raises(ValidationError, match="duplicate_window_hours"):
        Settings()
