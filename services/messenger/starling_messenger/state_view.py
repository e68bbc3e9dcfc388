"""Pure core: states as `starling state inspect` shows them. The stream layer finds this module by its name."""

from typing import Any

from starling_messages.state import decode_person, plain_person


def readable(state: bytes) -> Any:
    """Return the fields of a person's state by name. Raises: UnknownStateFormat for the bytes of no known format."""
    return plain_person(decode_person(state))
