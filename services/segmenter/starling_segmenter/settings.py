"""The settings of the segmenter: those of each worker of the stream layer, and its own."""

from typing import Annotated

from pydantic import Field

from starling_segments import FORMAT, FORMAT_BEFORE, WRITTEN_FORMAT
from starling_stream.model.settings import StreamSettings


class Settings(StreamSettings):
    """Read from `STARLING_…`; each name contains its unit."""

    publish_clock: Annotated[
        bool,
        Field(
            description="write `segments.clock`: up to which instant the memberships of each partition are complete, at most five "
            "times a second; campaigns with a delay wait for it"
        ),
    ] = True
    state_format: Annotated[
        int,
        Field(
            ge=FORMAT_BEFORE,
            le=FORMAT,
            description="format in which states of users are written; all formats up to the newest are read. Switch the newest one "
            "on when no process of an older release is left, which could not read it",
        ),
    ] = WRITTEN_FORMAT
