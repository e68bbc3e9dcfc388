"""Pure core: apply a computed trait to a profile."""

from collections.abc import Mapping
from typing import Any

import msgspec

from starling_common.outcome import Done, Outcome, Refused
from starling_common.time.instants import LATEST_MS
from starling_common.values import record_key
from starling_items.events import Fields, computed_changed
from starling_items.item import MAX_DEPTH, deeper_than
from starling_items.profile import Changed, Computation, Profile, set_computed


def fold_computed(computed: Mapping[str, Any], key: bytes, profile: Profile) -> Outcome[Fields | None]:
    """Apply an `AggregateComputed`; return its `ProfileChanged`, or Done(None) if the trait already has that value.

    The profile changes only if the result is Done. Skipped: this computation or a newer one is in force.
    """
    if key != record_key(computed["workspace"], computed["user_id"]):
        return Refused("wrong_key", f"key: is {key[:200]!r}, not that of the user in the record: write it with the user's own key")
    if not computed["trait_key"]:
        return Refused("missing_trait_key", "trait_key: is empty: write the key of the computed trait")
    if not 0 <= computed["as_of"] <= LATEST_MS:
        return Refused("bad_timestamp", f"as_of: {computed['as_of']} is no valid time: write milliseconds since 1970")
    value = _value(computed["value"])
    if isinstance(value, Refused):
        return value
    computation = Computation(computed["trait_version"], computed["as_of"], computed["epoch"], computed["sequence"])
    folded = set_computed(profile, computed["trait_key"], value, computation)
    if not isinstance(folded, Changed):
        return folded
    profile.traits_json = folded.traits_json
    profile.computations[computed["trait_key"]] = computation
    return Done(computed_changed(computed, profile, folded.names) if folded.names else None)


def _value(text: str | None) -> Any:
    if text is None:
        return None
    if deeper_than(MAX_DEPTH, text):
        return Refused("too_deep", f"value: is nested deeper than {MAX_DEPTH} levels: write a flatter value")
    try:
        return msgspec.json.decode(text)
    except ValueError as error:
        return Refused("bad_json", f"value: is not JSON ({error}): write the computed value as JSON")
