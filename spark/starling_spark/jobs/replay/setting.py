"""Pure core: what each worker of a replay is given."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """What each worker is given. `records`: of `segments.definitions`, in their order; `partitions`: partition -> (how many
    of them were in force there, up to when its timers fire, epoch ms).
    """

    records: tuple[Mapping[str, Any], ...]
    partitions: Mapping[int, tuple[int, int]]
