"""What the pages of notices call kinds, channels, days and what became of a delivery."""

from collections.abc import Mapping

from apps.notices.domain.channels import ChannelKind
from apps.notices.domain.digest import Cadence
from apps.notices.domain.idle import WEEKDAYS
from apps.notices.domain.message import HEADINGS
from apps.notices.domain.thresholds import Kind
from apps.notices.selectors import DeliveryRow

TELLS: Mapping[Kind, str] = {
    Kind.BUDGET: "a share of one is used, or it will be used up too soon",
    Kind.QUOTA: "one is full or nearly",
    Kind.IDLE: "work holds GPUs and does nothing with them; can be answered",
    Kind.WAIT: "work has waited for long",
    Kind.DATA_GAP: "nothing is known of a cluster; for who runs the platform",
    Kind.DRIFT: "a cluster shows another quota than was approved",
    Kind.REQUEST: "each step of a request, from submitted to applied",
    Kind.REVERT: "a raise is about to end",
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
        return HEADINGS[Kind(name)]
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
