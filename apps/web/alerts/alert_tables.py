"""Channels, muted alerts and deliveries as tables of pages."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, time
from typing import Annotated
from zoneinfo import ZoneInfo

from django.conf import settings
from msgspec import Struct

from apps.accounts.domain.rows import row_from
from apps.accounts.domain.structs import replace
from apps.alerts.domain.alerts import WEEKDAYS, AlertKind
from apps.alerts.domain.channels import ChannelKind
from apps.alerts.domain.digests import HEADINGS, Cadence
from apps.alerts.selectors import ChannelRow, DeliveryRow, MuteRow
from apps.clusters.domain.columns import Column
from apps.costs.domain.exports import MailState
from apps.costs.selectors import MonthlyMailRow
from apps.web.components.page_query import Query, href, with_query
from apps.web.components.tables import (
    RowAction,
    Table,
    TableRow,
    declared_columns,
    declared_values,
)

CHANNELS: Mapping[ChannelKind, str] = {
    ChannelKind.EMAIL: "E-mail",
    ChannelKind.SLACK: "Slack",
    ChannelKind.TEAMS: "Microsoft Teams",
    ChannelKind.WEBHOOK: "Webhook (JSON by HTTPS)",
}
CADENCES: Mapping[Cadence, str] = {
    Cadence.AT_ONCE: "immediately",
    Cadence.HOURLY: "hourly, in one message",
    Cadence.DAILY: "daily, in one message",
    Cadence.WEEKLY: "weekly, in one message",
}
DAYS = tuple(name.capitalize() for name in WEEKDAYS)
_CADENCES = {cadence.value: label for cadence, label in CADENCES.items()}
_WITH_TIME = {"daily", "weekly"}


def kind_label(name: str) -> str:
    """Return what a kind is called; its own name where this version does not know it."""
    try:
        return HEADINGS[AlertKind(name)]
    # Rows outlive versions: a kind may have come with a later one, or gone since.
    except ValueError:
        return name


def _channel_label(name: str) -> str:
    try:
        return CHANNELS[ChannelKind(name)]
    except ValueError:
        return name


# ---------------------------------------------------------------- channels


class ChannelLine(Struct, frozen=True):
    """A channel in words: in the list, in its file, and at the head of its page."""

    name: Annotated[str, Column("Name")]
    owner: Annotated[str, Column("Owner")]
    destination: Annotated[str, Column("Destination")]
    kinds: Annotated[str, Column("Alerts", wraps=True)]
    schedule: Annotated[str, Column("Schedule")]
    last_sent_at: Annotated[datetime | None, Column("Last sent", absent="never")]
    state: Annotated[str, Column("State", help="Failing: the last delivery failed.")]
    last_error: Annotated[str, Column("Error", wraps=True)]


def channel_line(row: ChannelRow) -> ChannelLine:
    """Return a channel in words; an error only where it is on."""
    # Rows name no error any more once something was sent after it.
    state = "disabled" if not row.active else "failing" if row.last_error else "on"
    return row_from(
        ChannelLine,
        row,
        owner=_owner(row),
        destination=f"{_channel_label(row.kind)}: {row.address}",
        kinds=_kinds(row.kinds),
        schedule=_schedule(row),
        state=state,
        last_error=row.last_error if row.active else "",
    )


def offered_kinds() -> list[AlertKind]:
    """Return the kinds that a channel can have: those of persons only where these are kept."""
    people = settings.PEOPLE
    there = {AlertKind.DIGEST: people, AlertKind.CAP: people and people.cap_gpus}
    return [kind for kind in AlertKind if there.get(kind, kind) is not None]


def _kinds(kinds: Sequence[str]) -> str:
    # At least: a channel may have a kind that is not offered any more.
    return "all" if set(kinds) >= set(offered_kinds()) else ", ".join(map(kind_label, kinds))


def channel_table(rows: Iterable[ChannelRow], zone: ZoneInfo) -> Table:
    """Return the channels that a reader may change."""
    return Table(
        id="channels",
        title="Channels",
        columns=declared_columns(ChannelLine),
        rows=[_channel_row(row) for row in rows],
        zone=zone,
        empty="No channels. Create one below to receive alerts.",
    )


def _channel_row(row: ChannelRow) -> TableRow:
    line = channel_line(row)
    return TableRow(
        declared_values(line),
        {"name": href("channel", pk=str(row.id))},
        {"state": "failed" if line.state == "failing" else ""},
    )


def _owner(row: ChannelRow) -> str:
    if row.team is not None:
        return f"team {row.team}"
    return row.owner if row.owner is not None else "the platform"


def _schedule(row: ChannelRow) -> str:
    words = _CADENCES.get(row.cadence, row.cadence)
    if row.cadence in _WITH_TIME:
        day = f" on {DAYS[row.weekday]}" if row.cadence == "weekly" else ""
        words = f"{words},{day} at {_clock(row.at)}"
    if row.quiet_from is not None and row.quiet_to is not None:
        words = f"{words}; quiet from {_clock(row.quiet_from)} to {_clock(row.quiet_to)}"
    return words


def _clock(at: time) -> str:
    return f"{at:%H:%M}"


# ---------------------------------------------------------------- muted alerts


class MuteLine(Struct, frozen=True):
    """A silence of a channel; `what` is what is not heard."""

    channel: Annotated[str, Column("Channel")]
    what: Annotated[str, Column("Muted", wraps=True)]
    until: Annotated[datetime, Column("Until")]
    reason: Annotated[str, Column("Reason", wraps=True)]
    by: Annotated[str, Column("By")]


def mute_table(rows: Iterable[MuteRow], zone: ZoneInfo, *, channel: int | None = None) -> Table:
    """Return silences with the buttons that end them, of one channel where one is named."""
    table = Table(
        id="silences",
        title="Muted alerts",
        columns=declared_columns(MuteLine),
        rows=[_mute_row(row) for row in rows if channel is None or row.channel_id == channel],
        zone=zone,
        empty="No muted alerts.",
    )
    return table if channel is None else of_one_channel(table)


def _mute_row(row: MuteRow) -> TableRow:
    about = f" about {row.subject}" if row.subject else ""
    what = f"{kind_label(row.kind) if row.kind else 'Everything'}{about}"
    end = href("end-mute", pk=str(row.id)) or ""
    return TableRow(
        declared_values(MuteLine(row.channel, what, row.end, row.why, row.by)),
        {"channel": href("channel", pk=str(row.channel_id))},
        actions=(RowAction("Unmute", end, f"Unmute: {what} on {row.channel}"),),
    )


def of_one_channel(table: Table) -> Table:
    """Return a table of one channel's page, which names it."""
    return replace(table, columns=[c for c in table.columns if c.key != "channel"])


# ---------------------------------------------------------------- deliveries


class DeliveryLine(Struct, frozen=True):
    """An alert on a channel, and what became of it."""

    title: Annotated[str, Column("Alert", wraps=True)]
    kind: Annotated[str, Column("Kind", off_page=True)]
    subject: Annotated[str, Column("Subject", off_page=True)]
    channel: Annotated[str, Column("Channel")]
    state: Annotated[str, Column("State")]
    due_at: Annotated[datetime, Column("Due")]
    sent_at: Annotated[datetime | None, Column("Sent", absent="not sent")]
    error: Annotated[str, Column("Error", wraps=True)]


def delivery_table(zone: ZoneInfo, rows: Iterable[DeliveryRow] = ()) -> Table:
    """Return the table for deliveries, the latest first."""
    return Table(
        id="deliveries",
        title="Deliveries",
        columns=declared_columns(DeliveryLine),
        rows=[delivery_row(row) for row in rows],
        zone=zone,
        empty="No deliveries yet.",
    )


def delivery_row(row: DeliveryRow, here: Query = ()) -> TableRow:
    """Return a delivery; `here` is where one comes back to from sending again."""
    line = row_from(DeliveryLine, row, kind=kind_label(row.kind), state=_delivery_state(row))
    channel = href("channel", pk=str(row.channel_id)) or ""
    mute = with_query(channel, (("kind", row.kind), ("subject", row.subject))) + "#mute"
    again = href("send-again", here, pk=str(row.id)) or ""
    name = f"Send again: {row.title}, to {row.channel}"
    # What is queued goes by itself, and what was sent would arrive twice.
    sends = row.state in {"given up", "muted"}
    return TableRow(
        declared_values(line),
        {"channel": channel},
        {"state": "failed" if row.state == "given up" else ""},
        details={"title": f"{line.kind} · {row.subject}"},
        actions=(
            *((RowAction("Send again", again, name),) if sends else ()),
            RowAction("Mute", mute, f"Mute {row.subject} on {row.channel}", is_link=True),
        ),
        anchor=f"delivery-{row.id}",
    )


def _delivery_state(row: DeliveryRow) -> str:
    if row.state == "queued":
        return f"failed {_times(row.failures)}, retrying" if row.failures else "queued"
    if row.state == "muted":
        # The error says why it was dropped, of which being muted is one reason of several.
        return "not sent" if row.error else "muted"
    return row.state


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


class MailLine(Struct, frozen=True):
    """A month's report to one address by mail."""

    month: Annotated[str, Column("Month")]
    recipient: Annotated[str, Column("Recipient")]
    state: Annotated[str, Column("State")]
    next_at: Annotated[datetime, Column("Due")]
    sent_at: Annotated[datetime | None, Column("Sent", absent="not sent")]
    error: Annotated[str, Column("Error", wraps=True)]


def mail_table(rows: Sequence[MonthlyMailRow], zone: ZoneInfo) -> Table:
    """Return the monthly reports by mail."""
    return Table(
        id="monthly-mails",
        title="Monthly reports",
        columns=declared_columns(MailLine),
        rows=[_mail_row(row) for row in rows],
        zone=zone,
        empty="No report was mailed yet.",
    )


def _mail_row(row: MonthlyMailRow) -> TableRow:
    month = f"{row.month:%Y-%m}"
    line = row_from(MailLine, row, month=month, state=_mail_state(row))
    return TableRow(
        declared_values(line),
        {"month": href("month-report", month=month)},
        {"state": "failed" if row.error else ""},
    )


def _mail_state(row: MonthlyMailRow) -> str:
    if row.state == MailState.FAILED.value:
        return "given up"
    if row.state == MailState.WAITING.value:
        return "month incomplete"
    if row.state == MailState.DUE.value:
        return f"failed {_times(row.attempts)}, retrying" if row.error else "queued"
    return row.state
