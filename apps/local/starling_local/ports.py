"""Pure core: the ports of an instance, as offsets from one base."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

DEFAULT_BASE = 18080
HOST = "127.0.0.1"
"""The only address that the parts of an embedded stack listen on."""

SPAN = 110
"""Number of ports of one instance: the bases of two instances differ by at least as many."""

MAX_WORKERS = 10
"""Maximum of workers of one service: each worker has its own port, and ten are reserved for each service."""

FIXED: Mapping[str, int] = MappingProxyType(
    {
        "ingest": 0,
        "api": 1,
        "registry": 2,
        "kafka": 3,
        "kafka-controller": 4,
        "cassandra": 5,
        "cassandra-storage": 6,
        "tracker": 7,
        "broadcaster": 8,
        "delivery-feeds": 9,
        "audience": 100,
    }
)
WORKERS: Mapping[str, int] = MappingProxyType(
    {
        "messenger": 10,
        "normalizer": 20,
        "segmenter": 30,
        "projector": 40,
        "delivery": 50,
        "spark": 60,
        "lake": 70,
        "views": 80,
        "delivery-email": 90,
    }
)
"""Service → offset of the port of worker 0; worker `n` serves health and metrics `n` ports higher."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of one instance. Raises ValueError for a base out of range."""

    base: int = DEFAULT_BASE

    def __post_init__(self) -> None:
        if not 1024 <= self.base <= 65535 - SPAN:
            raise ValueError(f"--port-base {self.base}: must be from 1024 to {65535 - SPAN}")

    def fixed(self, name: str) -> int:
        """Return the port of a part that runs once. Raises KeyError."""
        return self.base + FIXED[name]

    def worker(self, service: str, index: int) -> int:
        """Return the port of worker `index`. Raises ValueError for an index out of range."""
        if not 0 <= index < MAX_WORKERS:
            raise ValueError(f"--scale {service}: from 1 to {MAX_WORKERS} workers")
        return self.base + WORKERS[service] + index

    def address(self, name: str) -> str:
        """Return `host:port` of a part that runs once."""
        return f"{HOST}:{self.fixed(name)}"
