"""Edge: `stream.clock`, whose records only advance stream time; the stream layer passes none of them to `handle`."""

from starling_segmenter.handlers.handler import Handler
from starling_stream.model.processor import Decoded


class ClockHandler(Handler):
    """Decodes the instants to which stream time advances."""

    def decode(self, value: bytes) -> Decoded:
        """Return the instant as the event time. Raises: DecodeError."""
        return self._formats.past.decode_clock(value)
