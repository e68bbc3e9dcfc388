"""The settings of the segmenter: those of each worker of the stream layer, and its own."""

from typing import Annotated

from pydantic import Field

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
