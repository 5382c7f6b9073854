"""What the pages of alerts call kinds, channels, days and what became of a delivery."""

from collections.abc import Mapping

from apps.alerts.domain.alerts import WEEKDAYS, AlertKind
from apps.alerts.domain.channels import ChannelKind
from apps.alerts.domain.digests import HEADINGS, Cadence
from apps.alerts.selectors import DeliveryRow

TELLS: Mapping[AlertKind, str] = {
    AlertKind.BUDGET: "a share of one is used, or it will be used up too soon",
    AlertKind.QUOTA: "one is full or nearly",
    AlertKind.IDLE: "work holds GPUs and does nothing with them; can be answered",
    AlertKind.WAIT: "work has waited for long",
    AlertKind.DATA_GAP: "nothing is known of a cluster; for who runs the platform",
    AlertKind.DRIFT: "a cluster shows another quota than was approved",
    AlertKind.REQUEST: "each step of a request, from submitted to applied",
    AlertKind.REVERT: "a raise is about to end",
}
CHANNELS: Mapping[ChannelKind, str] = {
    ChannelKind.EMAIL: "E-mail",
    ChannelKind.SLACK: "Slack",
    ChannelKind.TEAMS: "Microsoft Teams",
    ChannelKind.WEBHOOK: "Webhook (JSON by HTTPS)",
}
CADENCES: Mapping[Cadence, str] = {
    Cadence.AT_ONCE: "at once",
    Cadence.HOURLY: "each hour, in one message",
    Cadence.DAILY: "each day, in one message",
    Cadence.WEEKLY: "each week, in one message",
}
DAYS = tuple(name.capitalize() for name in WEEKDAYS)


def kind_label(name: str) -> str:
    """Return what a kind is called; its own name where this version does not know it."""
    try:
        return HEADINGS[AlertKind(name)]
    except ValueError:
        return name


def channel_label(name: str) -> str:
    """Return what a kind of channel is called."""
    try:
        return CHANNELS[ChannelKind(name)]
    except ValueError:
        return name


def delivery_state(row: DeliveryRow) -> str:
    """Return what became of a delivery, in words."""
    if row.state == "queued":
        return f"failed {_times(row.failures)}, is tried again" if row.failures else "waits"
    if row.state == "muted":
        return "not sent" if row.error else "muted"
    return row.state


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
