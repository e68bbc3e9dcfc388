"""The records that were processed before earlier ones of their topic: each is processed once, whatever the order."""

from hypothesis import given
from hypothesis import strategies as st

from starling_stream.fold.beyond import Beyond
from starling_stream.model.meta import TaskMeta, decode_meta, encode_meta
from starling_stream.model.processor import Inbound


def _record(offset: int) -> Inbound:
    return Inbound("a", 0, offset, b"k", None, 0, None, (), b"")


@given(st.permutations(range(12)), st.data())
def test_position_and_ranges_name_exactly_the_processed_records(order: list[int], data: st.DataObject) -> None:
    beyond, position, done = Beyond(), 0, 0
    while done < len(order):
        count = data.draw(st.integers(1, 4))
        step, waiting = order[done : done + count], order[done + count :]
        done += count
        end = max(position, *[offset + 1 for offset in step])
        beyond = beyond.after([_record(offset) for offset in step], {"a": min(waiting, default=None)}, {"a": end})
        position = beyond.positions.get("a", end)
        processed = {*range(position), *beyond.offsets.get("a", ())}
        assert processed == set(order[:done])
        stored = decode_meta(encode_meta(TaskMeta(1, 0, b"", {"a": position}, 0, beyond.ranges())))
        assert Beyond.stored(stored, {"a": position}).offsets == beyond.offsets
        assert Beyond.stored(stored, {"a": position + 1}).offsets == {}, "an operator has moved the offset"
