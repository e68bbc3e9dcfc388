"""The settings of the normalizer. The rules for events are constants beside the code that applies them."""

from typing import Annotated

from pydantic import Field

from starling_common.settings import DuplicateWindowHours
from starling_items.profile import FORMAT, FORMAT_BEFORE, WRITTEN_FORMAT
from starling_stream.model.settings import StreamSettings


class Settings(StreamSettings):
    """Read from `STARLING_*`; nested names use two underscores."""

    duplicate_window_hours: DuplicateWindowHours = 168
    state_format: Annotated[
        int,
        Field(
            ge=FORMAT_BEFORE,
            le=FORMAT,
            description="format in which profiles are written; all formats up to the newest are read. Switch the newest one on "
            "when no process of an older release is left, which could not read it",
        ),
    ] = WRITTEN_FORMAT
