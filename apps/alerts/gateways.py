"""The room's clients to the world: the messenger and the seal, as the settings have them."""

from django.conf import settings

from apps.alerts.adapters.sealed import Seal, SealBroken
from apps.alerts.ports import Messenger

__all__ = ["SealBroken", "messenger", "seal"]


def messenger() -> Messenger:
    # Apprise knows a hundred services, and most processes send nothing.
    from apps.alerts.adapters.messenger import PortalMessenger

    return PortalMessenger(
        sender=settings.DEFAULT_FROM_EMAIL,
        allowed=settings.ALERTS_HOSTS,
        domains=settings.ALERTS_EMAIL_DOMAINS,
    )


def seal() -> Seal:
    return Seal([settings.SECRET_KEY, *map(str, settings.SECRET_KEY_FALLBACKS)])
