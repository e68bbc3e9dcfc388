"""What an operator may turn of the segmenter. It has nothing of its own beyond what every worker of the stream layer has."""

from starling_stream.model.settings import StreamSettings


class Settings(StreamSettings):
    """Read from `STARLING_…`; the units are in the names."""
