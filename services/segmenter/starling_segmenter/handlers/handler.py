"""Edge: the interface of a handler, which decodes and processes the records of one input topic."""

from starling_segmenter.emitter import Emitter
from starling_segmenter.records.formats import Formats
from starling_segmenter.state.states import State
from starling_stream.model.processor import Decoded, Inbound, Unit


class Handler:
    """A base class rather than a protocol: mypyc calls its methods without a look-up by name."""

    def __init__(self, formats: Formats, emitter: Emitter) -> None:
        self._formats = formats
        self._emitter = emitter

    def decode(self, value: bytes) -> Decoded:
        """Raises: DecodeError."""
        raise NotImplementedError

    def handle(self, record: Inbound, unit: Unit[State]) -> None:
        """Fold a record into the state of its key; store the state and emit the changes."""
        raise NotImplementedError
