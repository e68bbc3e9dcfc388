"""Metrics of processes, scraped several times, as series of promtool's unit tests."""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from starling_common.telemetry.metrics import telemetry
from tests.helm.promtool import INTERVAL

Series = list[dict[str, str]]

PLANTED_DOWN: Final = {"series": 'up{job="starling-planted",instance="down"}', "values": "0x20"}
"""A process that does not respond: none does so in a run, and a panel shows only such processes."""

_ABSENT: Final = "_"


def metrics_of(expr: str) -> set[str]:
    """Return the names of the metrics of ours in a query, as telemetry.yaml has them."""
    known = telemetry()
    names = re.findall(r"\bstarling_[a-z_]+", expr)
    return {name if name in known else re.sub(r"_(bucket|sum|count)$", "", name) for name in names}


class Recording:
    """The samples of every scrape. A scrape after the other becomes a minute after the other, whatever the time between them."""

    def __init__(self) -> None:
        self.scrapes = 0
        self._values: dict[str, list[str]] = {}
        self._recorded: set[str] = set()

    @property
    def at(self) -> str:
        """The instant of the last scrape."""
        return f"{self.scrapes - 1}{INTERVAL.removeprefix('1')}"

    def add(self, texts: Mapping[tuple[str, str], str]) -> None:
        """Add a scrape: (job, instance) -> the text that the process exports."""
        for (job, instance), text in texts.items():
            process = {"job": job, "instance": instance}
            self._put("up", process, 1.0)
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    if sample.name.startswith("starling_") and not sample.name.endswith("_created"):
                        self._put(sample.name, {**sample.labels, **process}, sample.value)
                        self._recorded |= metrics_of(sample.name)
        self.scrapes += 1

    def missing(self, names: Collection[str]) -> set[str]:
        """Return the metrics without a sample in any scrape."""
        return set(names) - self._recorded

    def series(self, names: Collection[str]) -> Series:
        """Return the recorded series of these metrics, and declared ones of those without a sample."""
        recorded = [
            {"series": series, "values": " ".join(values + [_ABSENT] * (self.scrapes - len(values)))}
            for series, values in self._values.items()
            if series.startswith("up{") or metrics_of(series.partition("{")[0]) & set(names)
        ]
        declared = [series for name in sorted(self.missing(names)) for series in declared_series(name, telemetry()[name])]
        return [*recorded, *declared, PLANTED_DOWN]

    def _put(self, name: str, labels: Mapping[str, str], value: float) -> None:
        text = ",".join(f"{label}={json.dumps(labels[label], ensure_ascii=False)}" for label in sorted(labels))
        values = self._values.setdefault(f"{name}{{{text}}}", [])
        values += [_ABSENT] * (self.scrapes - len(values))
        values.append(repr(float(value)).replace("nan", "NaN").replace("inf", "Inf"))


def declared_series(name: str, entry: Mapping[str, Any]) -> Series:
    """Return the series of a metric by its entry in telemetry.yaml, each growing by one a minute."""
    labels = ",".join(['job="starling-declared"', 'instance="declared"', *(f'{label}="x"' for label in entry.get("labels", ()))])
    if entry["type"] != "histogram":
        return [{"series": f"{name}{{{labels}}}", "values": "1+1x20"}]
    bounds = [*(str(float(bound)) for bound in entry["buckets"]), "+Inf"]
    return [{"series": f'{name}_bucket{{{labels},le="{bound}"}}', "values": "1+1x20"} for bound in bounds]
