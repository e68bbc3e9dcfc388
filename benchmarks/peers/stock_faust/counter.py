"""The counter as users of stock Faust write it: an agent and a table on RocksDB, values as Faust records. At least once.

python counter.py worker --without-web -l error
"""

import os

import faust

from starling_common.wire import Registry

codec = Registry(os.environ["PEER_REGISTRY"]).codec(os.environ["PEER_INPUT"], "BehaviourEvent")
app = faust.App(
    os.environ["PEER_GROUP"],
    broker=f"kafka://{os.environ['PEER_BROKERS']}",
    store="rocksdb://?driver=rocksdict",
    datadir=os.environ["PEER_STATE_DIR"],
    topic_partitions=8,
    consumer_auto_offset_reset="earliest",
)


class Counts(faust.Record):
    by_name: dict[str, int]
    last_ms: int = 0


source = app.topic(os.environ["PEER_INPUT"], key_type=str, value_type=bytes, key_serializer="raw", value_serializer="raw")
counts = app.Table("counts", key_type=str, value_type=Counts, partitions=8)


@app.agent(source)
async def count(stream: faust.StreamT[bytes]) -> None:
    async for user, value in stream.items():
        event = codec.decode(value)
        found = counts.get(user) or Counts(by_name={})
        found.by_name[event["name"]] = found.by_name.get(event["name"], 0) + 1
        found.last_ms = max(found.last_ms, event["event_time"])
        counts[user] = found


if __name__ == "__main__":
    app.main()
