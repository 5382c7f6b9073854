"""Channels and what went to them, as the pages show them."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import time

from apps.alerts.selectors import ChannelRow, DeliveryRow, MuteRow
from apps.web.alerts.words import CADENCES, DAYS, channel_label, delivery_state, kind_label
from apps.web.components.links import href, with_query

_CADENCES = {cadence.value: label for cadence, label in CADENCES.items()}
_WITH_TIME = {"daily", "weekly"}


@dataclass(frozen=True, slots=True)
class ChannelLine:
    """One channel of the list, in words."""

    row: ChannelRow
    of: str
    goes_to: str
    kinds: str
    when: str


@dataclass(frozen=True, slots=True)
class MuteLine:
    """One silence; `what` is what is not heard."""

    row: MuteRow
    what: str


@dataclass(frozen=True, slots=True)
class DeliveryLine:
    """One alert on one channel; `again`: it ended without being sent and can be sent by hand."""

    row: DeliveryRow
    kind: str
    state: str
    mute_href: str
    again: bool


def channel_lines(rows: Iterable[ChannelRow]) -> list[ChannelLine]:
    return [
        ChannelLine(
            row=row,
            of=_of(row),
            goes_to=f"{channel_label(row.kind)}: {row.address}",
            kinds=", ".join(kind_label(kind) for kind in row.kinds),
            when=_when(row),
        )
        for row in rows
    ]


def _of(row: ChannelRow) -> str:
    if row.team is not None:
        return f"team {row.team}"
    return row.owner if row.owner is not None else "the platform"


def _when(row: ChannelRow) -> str:
    words = _CADENCES.get(row.cadence, row.cadence)
    if row.cadence in _WITH_TIME:
        day = f" on {DAYS[row.weekday]}" if row.cadence == "weekly" else ""
        words = f"{words},{day} at {_clock(row.at)}"
    if row.quiet_from is not None and row.quiet_to is not None:
        words = f"{words}; quiet from {_clock(row.quiet_from)} to {_clock(row.quiet_to)}"
    return words


def _clock(at: time) -> str:
    return f"{at:%H:%M}"


def mute_lines(rows: Iterable[MuteRow], *, channel: int | None = None) -> list[MuteLine]:
    """Return silences, of one channel where one is named."""
    return [
        MuteLine(row, f"{kind_label(row.kind) if row.kind else 'Everything'}{_about(row)}")
        for row in rows
        if channel is None or row.channel_id == channel
    ]


def _about(row: MuteRow) -> str:
    return f" about {row.subject}" if row.subject else ""


def delivery_lines(rows: Iterable[DeliveryRow]) -> list[DeliveryLine]:
    return [
        DeliveryLine(
            row=row,
            kind=kind_label(row.kind),
            state=delivery_state(row),
            mute_href=_mute_href(row),
            again=row.state in {"given up", "muted"},
        )
        for row in rows
    ]


def _mute_href(row: DeliveryRow) -> str:
    page = href("channel", (), pk=str(row.channel_id)) or ""
    return with_query(page, (("kind", row.kind), ("subject", row.subject))) + "#mute"
