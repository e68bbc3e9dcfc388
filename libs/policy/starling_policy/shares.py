"""Pure core: the assignment of people to variants and to the holdout, by the hash of bucket conditions.

A share is in hundredths of a percent, from 0 to 10,000, so that sums are exact.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from starling_segments.engine.trait_conditions import share_of

WHOLE: Final = 10_000
"""100 percent."""
CONTROL_SALT: Final = "control"


class Variant(NamedTuple):
    """One variant of a campaign. `share`: its weight in hundredths of a percent."""

    key: str
    share: int


def position_of(salt: str, user_id: str) -> int:
    """Return a number from 0 to 9,999 that is always the same for a salt and a user, and independent between salts."""
    return round(share_of(salt, user_id) * 100)


def holdout_position(campaign: str, user_id: str) -> int:
    """Return the position of a user in the holdout of a campaign: positions below its share are held out."""
    return position_of(f"{campaign}:holdout", user_id)


def control_position(user_id: str) -> int:
    """Return the position of a user in the control group: positions below its share are held out of every campaign."""
    return position_of(CONTROL_SALT, user_id)


def variant_of(campaign: str, variants: Sequence[Variant], user_id: str) -> str | None:
    """Return the key of the user's variant: the ranges follow one another in document order. None without variants."""
    position = position_of(f"{campaign}:variant", user_id) if variants else 0
    for variant in variants:
        if position < variant.share:
            return variant.key
        position -= variant.share
    return None
