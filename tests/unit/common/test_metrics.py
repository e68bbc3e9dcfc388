"""A metric that is not in the catalogue cannot be used."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from starling_common.telemetry.metrics import Metrics, telemetry


def test_an_unlisted_metric_is_refused() -> None:
    with pytest.raises(KeyError):
        Metrics(CollectorRegistry()).counter("starling_made_up_total")


def test_a_metric_has_the_type_it_is_listed_with() -> None:
    with pytest.raises(TypeError, match="listed as a counter"):
        Metrics(CollectorRegistry()).gauge("starling_stream_records_total")


def test_every_listed_metric_can_be_built_and_read() -> None:
    metrics = Metrics(CollectorRegistry())
    for name, entry in telemetry().items():
        getattr(metrics, entry["type"])(name)
    text = generate_latest(metrics.registry).decode()
    assert all(entry["help"].replace("\n", " ") in text for entry in telemetry().values())
