"""Pure core: the parameters of a replay's workers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """The parameters of a worker. `records`: of `segments.definitions`, in their order; `partitions`: partition -> (number of
    records in force there, instant up to which its timers fire, epoch ms).
    """

    records: tuple[Mapping[str, Any], ...]
    partitions: Mapping[int, tuple[int, int]]
