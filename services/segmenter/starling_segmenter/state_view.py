"""Pure core: states as `starling state inspect` shows them."""

from typing import Any

import msgspec

from starling_segmenter.accounts import decode_account, is_account
from starling_segments import decode_state, plain


def readable(state: bytes) -> Any:
    """What is kept of a user, or of an account, by name. Raises: UnknownStateFormat for what no release so far has written."""
    return msgspec.to_builtins(decode_account(state), str_keys=True) if is_account(state) else plain(decode_state(state))
