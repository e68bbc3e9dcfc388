"""The counter as users of Quix Streams write it: a stateful update of a data frame, its own Avro deserializer, state as JSON."""

import os
from typing import Any

from quixstreams import Application, State
from quixstreams.models.serializers.avro import AvroDeserializer
from quixstreams.models.serializers.schema_registry import SchemaRegistryClientConfig


def count(event: dict[str, Any], state: State) -> None:
    counts = state.get("counts", default={"by_name": {}, "last_ms": 0})
    name, at_ms = event["name"], int(event["event_time"].timestamp() * 1000)
    counts["by_name"][name] = counts["by_name"].get(name, 0) + 1
    counts["last_ms"] = max(counts["last_ms"], at_ms)
    state.set("counts", counts)


def main() -> None:
    app = Application(
        broker_address=os.environ["PEER_BROKERS"],
        consumer_group=os.environ["PEER_GROUP"],
        auto_offset_reset="earliest",
        processing_guarantee=os.environ["PEER_GUARANTEE"],
        state_dir=os.environ["PEER_STATE_DIR"],
        # Its default is 5 s; progress is seen at commits only, and a short run needs several.
        commit_interval=1.0,
        loglevel="WARNING",
    )
    registry = SchemaRegistryClientConfig(url=os.environ["PEER_REGISTRY"])
    deserializer = AvroDeserializer(schema_registry_client_config=registry)
    events = app.topic(os.environ["PEER_INPUT"], key_deserializer="bytes", value_deserializer=deserializer)
    app.dataframe(events).update(count, stateful=True)
    app.run()


if __name__ == "__main__":
    main()
