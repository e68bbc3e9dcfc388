"""The settings of the ingest service; read once at start, then frozen."""

import re
from typing import Annotated, Any

from pydantic import Field, field_validator
from pydantic_settings import NoDecode

from starling_common.http.server import PublicHttp
from starling_common.settings import ServiceSettings, TraceSettings
from starling_ingest.requests.accept import MAX_ITEMS

_WORKSPACE = re.compile(r"[a-z][a-z0-9_-]{0,63}")


class Settings(ServiceSettings):
    """Read from STARLING_*. The form of `STARLING_WRITE_KEYS` is `key=workspace,other-key=other-workspace`."""

    http: PublicHttp
    traces: TraceSettings = TraceSettings()
    write_keys: Annotated[
        dict[str, str], NoDecode, Field(min_length=1, description="write keys, as key=workspace, comma separated")
    ]
    rate_items_per_second: Annotated[float, Field(gt=0, description="rate limit of one workspace in one process")] = 100_000
    rate_burst_items: Annotated[float, Field(ge=MAX_ITEMS, description="largest burst of one workspace")] = 200_000
    rate_requests_per_second: Annotated[
        float, Field(gt=0, description="requests of one workspace in one process; burst: two seconds")
    ] = 50_000
    rate_bytes_per_second: Annotated[
        float, Field(gt=0, description="bytes of decompressed bodies of one workspace in one process; burst: two seconds")
    ] = 256 * 2**20
    key_rate_requests_per_second: Annotated[float, Field(gt=0, description="requests of one write key; burst: two seconds")] = (
        50_000
    )
    key_rate_bytes_per_second: Annotated[float, Field(gt=0, description="bytes of one write key; burst: two seconds")] = 256 * 2**20
    body_timeout_seconds: Annotated[
        float,
        Field(
            gt=0, le=600, description="maximum time from the headers to the last byte of a body; a slower one is answered with 408"
        ),
    ] = 30
    queue_high_water_records: Annotated[
        int,
        Field(
            ge=MAX_ITEMS,
            le=1_000_000,
            description="maximum unacknowledged records; above its share of them a workspace is answered with 429",
        ),
    ] = 100_000
    queue_high_water_bytes: Annotated[
        int,
        Field(
            ge=2**20, le=2**30, description="maximum unacknowledged bytes; above its share of them a workspace is answered with 429"
        ),
    ] = 256 * 2**20
    ack_timeout_ms: Annotated[
        int,
        Field(
            ge=500,
            le=120_000,
            description="time that a request waits for the broker before it gets 503; keep it below the timeout of the clients",
        ),
    ] = 8_000
    drain_timeout_seconds: Annotated[float, Field(gt=0, le=300, description="time that a stop waits for open requests")] = 20

    @field_validator("write_keys", mode="before")
    @classmethod
    def _parse_entries(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        # Split at the last `=`: a key may contain the character, a workspace may not.
        pairs = [entry.strip().rpartition("=") for entry in value.split(",") if entry.strip()]
        if len({key for key, _, _ in pairs}) < len(pairs):
            raise ValueError("a write key is listed twice: remove one of the entries")
        return {key: workspace for key, _, workspace in pairs}

    @field_validator("write_keys")
    @classmethod
    def _check_entries(cls, value: dict[str, str]) -> dict[str, str]:
        for number, (key, workspace) in enumerate(value.items(), 1):
            if not key or not _WORKSPACE.fullmatch(workspace):
                raise ValueError(f"entry {number}: expected key=workspace, with a workspace that matches {_WORKSPACE.pattern}")
        return value
