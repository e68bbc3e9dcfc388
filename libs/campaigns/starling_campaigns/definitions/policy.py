"""Pure core: the policy document of a workspace, as it is stored. `starling_policy` defines its fields and their meaning."""

from typing import Final

from starling_policy import Policy, parse_policy
from starling_segments import DefinitionRefused, FieldError

POLICY_KEY: Final = "policy"
"""The key under which a workspace's only policy is stored."""


def parse_stored_policy(document: object, timezone: str = "UTC") -> Policy:
    """Return the policy of a JSON document. `timezone`: the workspace's, for a document without one.

    A cap of 0 is refused: it would silence a channel unseen. A paused campaign is visible.
    Raises: DefinitionRefused with all validation errors.
    """
    errors: tuple[FieldError, ...] = ()
    policy = Policy()
    try:
        policy = parse_policy(document, timezone)
    except DefinitionRefused as refused:
        errors = refused.errors
    errors += _zero_caps(document)
    if errors:
        raise DefinitionRefused(errors)
    return policy


def _zero_caps(document: object) -> tuple[FieldError, ...]:
    caps = document.get("caps") if isinstance(document, dict) else None
    return tuple(
        FieldError(
            f"/caps/{i}/limit", "out_of_range", "a cap of 0 sends nothing", "1 to 100; pause campaigns to stop their messages"
        )
        for i, cap in enumerate(caps if isinstance(caps, list) else ())
        if isinstance(cap, dict) and type(cap.get("limit")) is int and cap["limit"] == 0
    )
