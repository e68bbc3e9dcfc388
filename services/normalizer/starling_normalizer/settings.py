"""The settings of the normalizer. The rules for events are constants beside the code that applies them."""

from starling_stream.model.settings import StreamSettings


class Settings(StreamSettings):
    """Read from `STARLING_*`; nested names use two underscores. The normalizer adds nothing to a stream worker's settings."""
