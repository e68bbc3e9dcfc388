"""What an operator may turn; read once at start, then frozen."""

import re
from typing import Annotated, Any

from pydantic import Field, field_validator
from pydantic_settings import NoDecode

from starling_common.settings import ServiceSettings
from starling_ingest.accept import MAX_ITEMS

_WORKSPACE = re.compile(r"[a-z][a-z0-9_-]{0,63}")


class Settings(ServiceSettings):
    """Read from STARLING_*; `STARLING_WRITE_KEYS` is like `key=workspace,other-key=other-workspace`."""

    write_keys: Annotated[dict[str, str], NoDecode, Field(min_length=1, description="write key -> workspace")]
    rate_items_per_second: Annotated[float, Field(gt=0, description="of one workspace, through this process")] = 100_000
    rate_burst_items: Annotated[float, Field(ge=MAX_ITEMS, description="that may come at once")] = 200_000
    queue_high_water_records: Annotated[int, Field(ge=MAX_ITEMS, le=1_000_000, description="unacknowledged")] = 100_000
    queue_high_water_bytes: Annotated[int, Field(ge=2**20, le=2**30, description="unacknowledged")] = 256 * 2**20
    ack_timeout_ms: Annotated[int, Field(ge=500, le=120_000, description="after it 503; below the clients' own time-outs")] = 8_000
    drain_timeout_seconds: Annotated[float, Field(gt=0, le=300, description="for open requests at a stop")] = 20

    @field_validator("write_keys", mode="before")
    @classmethod
    def _pairs(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        # The workspace cannot hold a `=`, a key may.
        pairs = [entry.strip().rpartition("=") for entry in value.split(",") if entry.strip()]
        if len({key for key, _, _ in pairs}) < len(pairs):
            raise ValueError("a write key is listed twice")
        return {key: workspace for key, _, workspace in pairs}

    @field_validator("write_keys")
    @classmethod
    def _usable(cls, value: dict[str, str]) -> dict[str, str]:
        for number, (key, workspace) in enumerate(value.items(), 1):
            if not key or not _WORKSPACE.fullmatch(workspace):
                raise ValueError(f"entry {number} is not key=workspace, with a workspace that matches {_WORKSPACE.pattern}")
        return value
