"""The settings of the messenger: those of each worker of the stream layer."""

from starling_stream.model.settings import StreamSettings


class Settings(StreamSettings):
    """Read from `STARLING_…`; each name contains its unit."""
