"""What an operator may turn; everything else about events is a rule of the platform and stands beside its user."""

from starling_stream.model.settings import StreamSettings


class Settings(StreamSettings):
    """Read from `STARLING_*`; nested names use two underscores. The normalizer adds nothing to a stream worker's settings."""
