"""Builds a delivery process from its settings. No other package imports both settings and concrete classes."""

from starling_delivery.settings import EmailSettings, Settings
from starling_delivery.wiring.campaigns import build_campaigns
from starling_delivery.wiring.memberships import build_memberships
from starling_delivery.wiring.process import Delivery


def build(settings: Settings | EmailSettings) -> Delivery:
    """Return the process of a channel of feeds, or of the channels of campaigns. Its health server is already started.

    Raises: SchemaMissing, RegistryUnavailable, KeyError for a channel that is not registered, ValueError for invalid keys.
    """
    return build_campaigns(settings) if isinstance(settings, EmailSettings) else build_memberships(settings)
