"""Pure core: states as `starling state inspect` shows them. The stream layer finds this module by its name."""

from typing import Any

import msgspec

from starling_segmenter.state.accounts import AccountState
from starling_segmenter.state.states import decode
from starling_segments import plain


def readable(state: bytes) -> Any:
    """Return the fields of a user's or an account's state by name. Raises: UnknownStateFormat for the bytes of no known format."""
    found = decode(state)
    return msgspec.to_builtins(found, str_keys=True) if isinstance(found, AccountState) else plain(found)
