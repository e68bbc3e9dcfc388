"""Pure core: a row of the past -> the input record that segments are evaluated on."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from starling_common.kafka.topics import BEHAVIOUR, DELIVERY, LIST_MEMBERSHIP, PROFILE
from starling_rules.events import BEHAVIOUR_FIELDS, Behaviour, Listed, Profile, Reported, reported
from starling_spark.history.past import FIELDS

InputRecord: TypeAlias = Behaviour | Profile | Listed

_TOPICS: Final = tuple(FIELDS)


def past_record(row: Mapping[str, Any]) -> InputRecord | Reported | None:
    """Return the record of a row of `past.PAST`; None where segments do not read it. A delivery report has no time yet."""
    topic = _TOPICS[row["place"]]
    if topic == DELIVERY:
        return reported(row["name"], row["properties"], row["correlation_id"])
    values = row if topic == LIST_MEMBERSHIP else {**row, "event_time": row["instant_ms"]}
    if topic == BEHAVIOUR:
        return Behaviour(tuple([values[name] for name in BEHAVIOUR_FIELDS]))
    if topic == PROFILE:
        return Profile(*[values[name] for name in Profile._fields])
    return Listed(*[values[name] for name in Listed._fields])
