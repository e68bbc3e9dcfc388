"""Pure core: the states of a campaign, and the fields that are frozen after its activation."""

from typing import Any, Final

from starling_campaigns.definitions.campaign import Campaign
from starling_campaigns.definitions.triggers import BroadcastTrigger, EventTrigger, Trigger
from starling_segments import FieldError
from starling_segments.language.identity import selector_facts

DRAFT: Final = "draft"
ACTIVE: Final = "active"
PAUSED: Final = "paused"
ARCHIVED: Final = "archived"
STATES: Final = (DRAFT, ACTIVE, PAUSED, ARCHIVED)

ACTIVATE: Final = "activate"
PAUSE: Final = "pause"
RESUME: Final = "resume"
ARCHIVE: Final = "archive"
TRANSITIONS: Final = {
    ACTIVATE: {DRAFT: ACTIVE, ACTIVE: ACTIVE},
    PAUSE: {ACTIVE: PAUSED, PAUSED: PAUSED},
    RESUME: {PAUSED: ACTIVE, ACTIVE: ACTIVE},
    ARCHIVE: {DRAFT: ARCHIVED, ACTIVE: ARCHIVED, PAUSED: ARCHIVED, ARCHIVED: ARCHIVED},
}
"""Operation -> state before it -> state after it. An operation that is missing for a state is refused."""

_EXPECTED: Final = "the value of before; archive the campaign and create another one to change it"


def state_after(operation: str, state: str) -> str | None:
    """Return the state after an operation; None if the state does not allow it."""
    return TRANSITIONS[operation].get(state)


def frozen_errors(before: Campaign, after: Campaign) -> tuple[FieldError, ...]:
    """Return an error for each changed field that is frozen after the activation; of a broadcast everything is frozen."""
    changed = [
        (pointer, _facts_of(pointer, before), _facts_of(pointer, after))
        for pointer in ("/trigger", "/channel", "/holdout", "/variants")
    ]
    errors = [_frozen(pointer) for pointer, one, other in changed if one != other]
    if isinstance(before.trigger, BroadcastTrigger) and not errors and _content_of(before) != _content_of(after):
        errors = [FieldError("", "frozen_field", "nothing of a broadcast can change after its activation", _EXPECTED)]
    return tuple(errors)


def _frozen(pointer: str) -> FieldError:
    what = "the keys, the weights and the order of the variants are" if pointer == "/variants" else f"the {pointer[1:]} is"
    return FieldError(pointer, "frozen_field", f"{what} frozen after the activation", _EXPECTED)


def _facts_of(pointer: str, campaign: Campaign) -> Any:
    rules = campaign.rules
    return {
        "/trigger": _trigger_facts(campaign.trigger),
        "/channel": rules.channel,
        "/holdout": rules.holdout_share,
        "/variants": rules.variants,
    }[pointer]


def _trigger_facts(trigger: Trigger) -> Any:
    if isinstance(trigger, EventTrigger):
        return [selector_facts(trigger.event), trigger.while_segment]
    return trigger


def _content_of(campaign: Campaign) -> Any:
    cancel, goal = campaign.cancel, campaign.goal
    return [
        campaign.rules, campaign.target, campaign.contents, campaign.delay_ms, campaign.rate, cancel.left,
        None if cancel.event is None else selector_facts(cancel.event),
        None if goal is None else [selector_facts(goal.event), goal.within_ms, goal.value],
    ]  # fmt: skip
