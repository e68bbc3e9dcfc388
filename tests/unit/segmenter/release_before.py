"""A segmenter as the release before this one: it does not read the newest format."""

from typing import Any, cast

from starling_segmenter.state.accounts import is_account
from starling_segmenter.state.states import State
from starling_segments import FORMAT_BEFORE, UnknownStateFormat
from starling_stream.model.processor import Processor


def release_before(processor: Processor[State]) -> Processor[State]:
    """Return the processor of the release before; all but the decoding of states is that of the given one."""
    return cast("Processor[State]", _ReleaseBefore(processor))


class _ReleaseBefore:
    def __init__(self, processor: Processor[State]) -> None:
        self._processor = processor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._processor, name)

    def decode_state(self, data: bytes) -> State:
        if not is_account(data) and data[0] > FORMAT_BEFORE:
            raise UnknownStateFormat(f"state format {data[:1].hex()}, expected at most {FORMAT_BEFORE:02x}")
        return self._processor.decode_state(data)
