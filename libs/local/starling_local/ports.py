"""Pure core: which port every part of an instance listens on, all counted from one base."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

DEFAULT_BASE = 18080
HOST = "127.0.0.1"
"""Everything of an embedded stack listens here and nowhere else."""

SPAN = 100
"""Ports one instance may use from its base on: bases of neighbours must be this far apart."""

MAX_WORKERS = 10
"""Workers of one service: each has its own port, ten are kept for each service."""

FIXED: Mapping[str, int] = MappingProxyType(
    {
        "ingest": 0,
        "api": 1,
        "registry": 2,
        "kafka": 3,
        "kafka-controller": 4,
        "cassandra": 5,
        "cassandra-storage": 6,
    }
)
WORKERS: Mapping[str, int] = MappingProxyType(
    {"normalizer": 20, "segmenter": 30, "projector": 40, "delivery": 50, "spark": 60, "lake": 70, "views": 80}
)
"""The first port of a service's workers; worker `n` listens `n` higher and serves health and metrics there."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of one instance. Raises ValueError if the base leaves no room for them."""

    base: int = DEFAULT_BASE

    def __post_init__(self) -> None:
        if not 1024 <= self.base <= 65535 - SPAN:
            raise ValueError(f"--port-base {self.base}: must be from 1024 to {65535 - SPAN}")

    def fixed(self, name: str) -> int:
        """The port of a part that there is one of. Raises KeyError."""
        return self.base + FIXED[name]

    def worker(self, service: str, index: int) -> int:
        """Where worker `index` answers health and metrics. Raises ValueError beyond the last one."""
        if not 0 <= index < MAX_WORKERS:
            raise ValueError(f"--scale {service}: from 1 to {MAX_WORKERS} workers")
        return self.base + WORKERS[service] + index

    def address(self, name: str) -> str:
        """host:port of a part that there is one of."""
        return f"{HOST}:{self.fixed(name)}"
