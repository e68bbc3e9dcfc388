"""The settings of the normalizer. The rules for events are constants beside the code that applies them."""

from starling_common.settings import DuplicateWindowHours
from starling_stream.model.settings import StreamSettings


class Settings(StreamSettings):
    """Read from `STARLING_*`; nested names use two underscores."""

    duplicate_window_hours: DuplicateWindowHours = 168
