"""Saying things once: what was said stays said, and goes to every channel that wants it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from zoneinfo import ZoneInfo

from django.db import transaction

from apps.notices.domain.digest import Cadence, Schedule, due_at
from apps.notices.domain.mutes import Mute, QuietHours, deliverable_at, is_muted
from apps.notices.domain.thresholds import (
    Kind,
    Standing,
    Threshold,
    judge,
    notice_key,
)
from apps.notices.models import Channel, Delivery, Notice, Turn
from apps.notices.models import Mute as MuteRow
from apps.notices.models import Standing as StandingRow
from apps.notices.permissions import hearing


@dataclass(frozen=True, slots=True)
class Said:
    """One thing to say: `occasion` is what makes this time another one than the last.

    `team_id` None: it is about the platform. `path` is the page that shows it.
    """

    kind: Kind
    subject: str
    team_id: int | None
    title: str
    text: str
    path: str = ""
    urgent: bool = False
    occasion: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Measured:
    """A value to be held against levels, in the unit of its kind; None is not known now."""

    said: Said
    value: float | None


def _everything(_subject: str) -> bool:
    return True


def say(things: Iterable[Said], *, now: datetime, zone: ZoneInfo) -> int:
    """Note what was not said before, and queue it for channels; return how much was new.

    Whole or not at all. Clocks of channels run in `zone`.
    """
    with transaction.atomic():
        return _say(things, now, zone)


def hold(
    threshold: Threshold,
    measured: Sequence[Measured],
    *,
    now: datetime,
    zone: ZoneInfo,
    over: Callable[[str], bool] = _everything,
) -> int:
    """Hold values against levels and say which were reached; return how many notices are new.

    What stood before and is not among them has ended where `over` says so of its subject; of
    others that is not known. Two that do this for one kind at once wait for each other. Whole or
    not at all.
    """
    kind = threshold.kind
    with transaction.atomic():
        _turn(kind.value)
        rows = {row.subject: row for row in StandingRow.objects.filter(kind=kind.value)}
        new = []
        for one in measured:
            row = rows.pop(one.said.subject, None)
            if _judged(threshold, row, one, now):
                new.append(one.said)
        ended = [row.pk for subject, row in rows.items() if over(subject)]
        StandingRow.objects.filter(pk__in=ended).delete()
        return _say([_at(said, now) for said in new], now, zone)


def go_on(
    source: str,
    read: Callable[[int], tuple[Iterable[Said], int]],
    *,
    now: datetime,
    zone: ZoneInfo,
) -> int:
    """Say what a numbered source has since it was last asked; return how much was new.

    `read` gets the last number and returns what to say and the new last number. What is said and
    how far it was read are written together, so that nothing is left out after a crash.
    """
    with transaction.atomic():
        turn = _turn(source)
        things, position = read(turn.position)
        new = _say(things, now, zone)
        if position != turn.position:
            turn.position = position
            turn.save(update_fields=["position"])
        return new


def _turn(name: str) -> Turn:
    Turn.objects.get_or_create(pk=name)
    return Turn.objects.select_for_update().get(pk=name)


def _judged(threshold: Threshold, row: StandingRow | None, one: Measured, now: datetime) -> bool:
    """Keep the standing of a subject; return whether a notice is due."""
    before = Standing() if row is None else Standing(row.level, row.said_at)
    found = judge(threshold, before, one.value, now=now)
    level, said_at = found.standing.level, found.standing.said_at
    if level is None or said_at is None:
        if row is not None:
            row.delete()
    elif found.standing != before:
        StandingRow.objects.update_or_create(
            kind=threshold.kind.value,
            subject=one.said.subject,
            defaults={"level": level, "said_at": said_at},
        )
    return found.notice


def _at(said: Said, now: datetime) -> Said:
    return Said(
        *(said.kind, said.subject, said.team_id, said.title, said.text, said.path, said.urgent),
        occasion=(now.isoformat(),),
    )


def _say(things: Iterable[Said], now: datetime, zone: ZoneInfo) -> int:
    wanted = {key: _notice(key, said, now) for said in things if (key := _key(said))}
    known = set(Notice.objects.filter(key__in=wanted).values_list("key", flat=True))
    missing = [notice for key, notice in wanted.items() if key not in known]
    if not missing:
        return 0
    Notice.objects.bulk_create(missing, ignore_conflicts=True)
    # Read back: of two that say the same at once, one wrote it, and rows have their ids.
    keys = [notice.key for notice in missing]
    said_now = list(Notice.objects.filter(key__in=keys).order_by("at", "pk"))
    Delivery.objects.bulk_create(_deliveries(said_now, now, zone), ignore_conflicts=True)
    return len(said_now)


def _key(said: Said) -> str:
    return notice_key(said.kind, said.subject, "", said.occasion)


def _notice(key: str, said: Said, now: datetime) -> Notice:
    return Notice(
        key=key,
        kind=said.kind.value,
        subject=said.subject,
        team_id=said.team_id,
        title=said.title,
        text=said.text,
        path=said.path,
        at=now,
        urgent=said.urgent,
    )


def _deliveries(notices: Sequence[Notice], now: datetime, zone: ZoneInfo) -> list[Delivery]:
    channels = Channel.objects.filter(active=True).select_related("owner").order_by("pk")
    mutes: dict[int, list[Mute]] = {}
    for row in MuteRow.objects.filter(start__lte=now, end__gt=now).order_by("pk"):
        kind = Kind(row.kind) if row.kind else None
        mutes.setdefault(row.channel_id, []).append(Mute(row.start, row.end, kind, row.subject))
    found = []
    for channel in channels:
        told = [notice for notice in notices if notice.kind in channel.kinds]
        hears = hearing(channel) if told else None
        found += [
            _delivery(notice, channel, mutes.get(channel.pk, []), now, zone)
            for notice in told
            if hears is not None and hears(notice)
        ]
    return found


def _delivery(
    notice: Notice, channel: Channel, mutes: Iterable[Mute], now: datetime, zone: ZoneInfo
) -> Delivery:
    muted = is_muted(mutes, Kind(notice.kind), notice.subject, now)
    at = now if notice.urgent else due_at(_schedule(channel, zone), now)
    return Delivery(
        notice=notice,
        channel=channel,
        state=Delivery.State.MUTED if muted else Delivery.State.QUEUED,
        due_at=at if notice.urgent else deliverable_at(at, _quiet(channel, zone)),
    )


def _schedule(channel: Channel, zone: ZoneInfo) -> Schedule:
    return Schedule(Cadence(channel.cadence), zone, channel.at, channel.weekday)


def _quiet(channel: Channel, zone: ZoneInfo) -> list[QuietHours]:
    if channel.quiet_from is None or channel.quiet_to is None:
        return []
    return [QuietHours(channel.quiet_from, channel.quiet_to, zone)]
