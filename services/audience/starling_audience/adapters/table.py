"""Pure core: the adapter of a target."""

from starling_audience.adapters.adapter import Adapter
from starling_audience.adapters.braze import Braze
from starling_audience.adapters.customerio import CustomerIo
from starling_audience.adapters.generic import Generic
from starling_audience.adapters.google import Google
from starling_audience.adapters.meta import Meta
from starling_audience.definitions import AudienceTarget
from starling_campaigns.definitions.targets import BRAZE, CUSTOMERIO, GOOGLE, META


def adapter_of(target: AudienceTarget) -> Adapter:
    """Return the adapter of a target with plain secrets."""
    settings = target.settings
    match target.adapter:
        case name if name == BRAZE:
            return Braze(settings)
        case name if name == CUSTOMERIO:
            return CustomerIo(settings)
        case name if name == META:
            return Meta(settings)
        case name if name == GOOGLE:
            return Google(settings)
        case _:
            return Generic(settings, target.key)
