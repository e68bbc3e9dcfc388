"""Edge: `events.profile`, the profiles of users as snapshots after each change."""

from starling_common.outcome import Refused
from starling_rules.events import Profile, parse_object
from starling_rules.history import REFUSED_CHANGES
from starling_segmenter.emitter import with_user_id
from starling_segmenter.handlers.handler import Handler
from starling_segmenter.records.membership import Cause
from starling_segmenter.state.states import State, user_state
from starling_segments import set_account
from starling_stream.model.processor import Decoded, Inbound, Unit


class ProfileHandler(Handler):
    """Each snapshot replaces the traits and the account of the user."""

    def decode(self, value: bytes) -> Decoded:
        """Return a `Profile`. Raises: DecodeError."""
        return self._formats.past.decode_profile(value)

    def handle(self, record: Inbound, unit: Unit[State]) -> None:
        """Fold the snapshot. Merges and erasures are refused: they are not implemented."""
        profile: Profile = record.value
        if profile.change in REFUSED_CHANGES:
            unit.refuse(record, "not_yet", f"profile changes of the kind {profile.change} are not implemented")
            return
        traits = parse_object(profile.traits)
        if isinstance(traits, Refused):
            unit.refuse(record, traits.code, traits.message)
            return
        key, emitter = record.key, self._emitter
        rules = emitter.rules_of(key, unit)
        state = with_user_id(key, user_state(unit, key))
        emitter.pass_time((key, state, rules), unit.stream_time_ms, unit)
        moved = set_account(state, profile.group_id)
        changes = rules.evaluator.on_profile(state, traits, profile.anonymous_ids, unit.stream_time_ms)
        if moved and not profile.group_id:
            changes += rules.evaluator.on_account(state, None, unit.stream_time_ms)
        cause = Cause("EVENT", record, profile.message_id, None, profile.correlation_id)
        emitter.conclude((key, state, rules), changes, cause, unit)
