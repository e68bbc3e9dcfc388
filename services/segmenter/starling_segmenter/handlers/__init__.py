"""Edge: the handler of each input topic. A new input topic is one module here and one line in `HANDLERS`."""

from typing import Final

from starling_common.kafka.topics import (
    ACCOUNT_ANSWERS,
    ACCOUNT_TALLIES,
    BEHAVIOUR,
    CLOCK,
    DELIVERY,
    LIST_MEMBERSHIP,
    PROFILE,
)  # fmt: skip
from starling_segmenter.emitter import Emitter
from starling_segmenter.handlers.account_answers import AccountAnswerHandler
from starling_segmenter.handlers.account_tallies import AccountTallyHandler
from starling_segmenter.handlers.behaviour import BehaviourHandler
from starling_segmenter.handlers.clock import ClockHandler
from starling_segmenter.handlers.delivery import DeliveryHandler
from starling_segmenter.handlers.handler import Handler
from starling_segmenter.handlers.lists import ListHandler
from starling_segmenter.handlers.profile import ProfileHandler
from starling_segmenter.records.formats import Formats

HANDLERS: Final[dict[str, type[Handler]]] = {
    BEHAVIOUR: BehaviourHandler,
    PROFILE: ProfileHandler,
    CLOCK: ClockHandler,
    LIST_MEMBERSHIP: ListHandler,
    DELIVERY: DeliveryHandler,
    ACCOUNT_ANSWERS: AccountAnswerHandler,
    ACCOUNT_TALLIES: AccountTallyHandler,
}
"""Input topic -> its handler. Of records with the same `received_at`, the record of the earlier topic is processed first."""


def build_handlers(formats: Formats, emitter: Emitter) -> dict[str, Handler]:
    """Return one handler for each input topic."""
    return {topic: handler(formats, emitter) for topic, handler in HANDLERS.items()}
