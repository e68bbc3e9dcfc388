"""Pure core: one person in one unit of work: the state, and the person as the policy sees it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from starling_common.values import deterministic_id
from starling_messages.campaigns import Workspace
from starling_messages.devices import reached_devices
from starling_messages.effects import Effect
from starling_messages.state import PersonState
from starling_policy import History, PastMessage, Person, Suppression, address_digest
from starling_policy.checks import addresses_of

UNKNOWN_MS: Final = 600_000
"""A message that a channel began to send and never reported is unknown after this time."""

_object = msgspec.json.Decoder(dict[str, Any])

SuppressionOf = Callable[[str, str], str | None]
"""(channel, digest of an address) -> the kind of its suppression; None for an address that is not suppressed."""


@dataclass
class PersonUnit:
    """One person in one unit of work. `clock`: the instant that is settled, epoch ms. Effects are collected in `effects`.

    `unknown_ms`: see `UNKNOWN_MS`; None under the event clock, which the attempts of channels do not follow.
    """

    workspace: str
    user_id: str
    state: PersonState
    campaigns: Workspace
    clock: int
    suppression_of: SuppressionOf = lambda _channel, _digest: None
    unknown_ms: int | None = UNKNOWN_MS
    effects: list[Effect] = field(default_factory=list)
    _traits: Mapping[str, Any] | None = None

    def replace_traits(self, traits: str) -> None:
        """Replace the traits, a JSON object."""
        self.state.traits, self._traits = traits, None

    def known(self, channel: str, target: str | None = None) -> Person:
        """Return the person as the policy sees it for a message in a channel.

        `target`: the channel of the target, such as `fcm` of `push`: only the devices that it reaches are known. None: all are.
        """
        state = self.state
        kept = {one.campaign for one in state.ledger}
        # Re-entry looks back permanently. A message that counts for no cap stands for those that the ledger has dropped.
        earlier = [PastMessage(at, "", "", key, None, True) for key, at in state.last.items() if key not in kept]
        person = Person(
            self.user_id,
            self.traits(),
            {name: reached_devices(addresses, target if name == channel else None) for name, addresses in state.devices.items()},
            tuple(state.consent),
            (),
            History((*earlier, *state.ledger)),
        )
        suppressions = []
        for address in addresses_of(channel, person) or ():
            digest = address_digest(address)
            kind = self.suppression_of(channel, digest)
            if kind is not None:
                suppressions.append(Suppression(channel, digest, kind))
        if not suppressions:
            return person
        return replace(person, suppressions=tuple(suppressions))

    def traits(self) -> Mapping[str, Any]:
        """Return the traits of the person."""
        if self._traits is None:
            self._traits = _object.decode(self.state.traits)
        return self._traits


def delivery_id(workspace: str, campaign: str, user_id: str, instance: str, device: str) -> str:
    """Return the id of a message to one device, the same whenever it is decided. `device`: empty for a single address."""
    return deterministic_id(workspace, campaign, user_id, instance, device)
