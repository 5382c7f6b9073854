"""Evaluate alerts once: each is stored once, and sent to every channel that subscribes to it."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from django.db import transaction
from django.db.models import Max, Min
from msgspec import Struct, field

from apps.accounts.domain.structs import replace
from apps.alerts.domain.alerts import (
    AlertKind,
    AlertLevel,
    MuteWindow,
    QuietHours,
    Threshold,
    alert_key,
    deliverable_at,
    is_muted,
    judge,
)
from apps.alerts.domain.digests import Cadence, Schedule, due_at
from apps.alerts.models import Alert, AlertState, Channel, Delivery, SourceCursor
from apps.alerts.permissions import hearing
from apps.alerts.services.delivery import mutes_of

# Names of Kubernetes are long enough to go over what the columns take, and one that does would
# keep back all that is said with it.
_LONGEST_KEY, _LONGEST_SUBJECT, _LONGEST_TITLE = 900, 600, 200
_LONGEST_TEXT, _LONGEST_PATH = 5000, 1000


class NewAlert(Struct, frozen=True):
    """One thing to say: `occasion` is what makes this time another one than the last.

    `team_id` None: it is about the platform. `path` is the page that shows it. With a `person_id`
    it is for that account alone.
    """

    kind: AlertKind
    subject: str
    team_id: int | None
    title: str
    text: str
    path: str = ""
    urgent: bool = False
    occasion: tuple[str, ...] = field(default=())
    person_id: int | None = None


class Measurement(Struct, frozen=True):
    """A value to be held against levels, in the unit of its kind; None is not known now."""

    said: NewAlert
    value: float | None


def _everything(_subject: str) -> bool:
    return True


def notify(things: Iterable[NewAlert], *, now: datetime, zone: ZoneInfo) -> int:
    """Note what was not said before, and queue it for channels; return how much was new.

    Whole or not at all. Clocks of channels run in `zone`.
    """
    with transaction.atomic():
        return _say(things, now, zone)


def evaluate(
    threshold: Threshold,
    measured: Sequence[Measurement],
    *,
    now: datetime,
    zone: ZoneInfo,
    over: Callable[[str], bool] = _everything,
) -> int:
    """Hold values against levels and say which were reached; return how many alerts are new.

    A subject that stood before and has no value now has ended if `over` says so; else that is not
    known. Two evaluations of one kind wait for each other. Whole or not at all.
    """
    kind = threshold.kind
    measured = [replace(one, said=_fitting(one.said)) for one in measured]
    with transaction.atomic():
        # The lock: two evaluations of one kind would both find a level newly reached.
        _locked_cursor(kind.value)
        rows = {row.subject: row for row in AlertState.objects.filter(kind=kind.value)}
        # Zero and not deleted at once: `judge` still remembers what was said recently.
        gone = {subject: 0.0 for subject in rows if over(subject)}
        values = gone | {one.said.subject: one.value for one in measured}
        found = {
            subject: judge(threshold, _level_of(rows.get(subject)), value, now=now)
            for subject, value in values.items()
        }
        _keep(kind, rows, {subject: judged.level for subject, judged in found.items()})
        new = [one.said for one in measured if found[one.said.subject].alert]
        return _say([_at(said, now) for said in new], now, zone)


def go_on(
    source: str,
    read: Callable[[int], tuple[Iterable[NewAlert], int]],
    *,
    now: datetime,
    zone: ZoneInfo,
) -> int:
    """Say what a numbered source has since it was last asked; return how much was new.

    `read` gets the last number and returns what to say and the new last number. What is said and
    how far it was read are written together, so that nothing is left out after a crash.
    """
    with transaction.atomic():
        cursor = _locked_cursor(source)
        things, position = read(cursor.position)
        new = _say(things, now, zone)
        if position != cursor.position:
            cursor.position = position
            cursor.save(update_fields=["position"])
        return new


CATCHING_UP = timedelta(hours=1)
"""So long after the first round what stands is history: the portal still collects it."""


def note_history(*, now: datetime) -> None:
    """Note up to which alert standing problems were there before the portal looked.

    They are listed, but they are no news: a portal that is an hour old would else have a hundred
    unread alerts, none of which happened since.
    """
    with transaction.atomic():
        oldest = Alert.objects.aggregate(oldest=Min("at"))["oldest"]
        begun = int((oldest or now).timestamp())
        first, _ = SourceCursor.objects.get_or_create(
            pk=SourceCursor.FIRST_ROUND, defaults={"position": begun}
        )
        cursor = _locked_cursor(SourceCursor.HISTORY)
        until = datetime.fromtimestamp(first.position, UTC) + CATCHING_UP
        known = Alert.objects.filter(at__lt=until).aggregate(newest=Max("pk"))["newest"] or 0
        if known > cursor.position:
            cursor.position = known
            cursor.save(update_fields=["position"])


def _locked_cursor(name: str) -> SourceCursor:
    SourceCursor.objects.get_or_create(pk=name)
    return SourceCursor.objects.select_for_update().get(pk=name)


def _level_of(row: AlertState | None) -> AlertLevel:
    return AlertLevel() if row is None else AlertLevel(row.level, row.said_at, row.said_level)


def _keep(
    kind: AlertKind, rows: Mapping[str, AlertState], standings: Mapping[str, AlertLevel]
) -> None:
    """Write the standings that changed, and delete those of which nothing is left."""
    over = [row.pk for subject, row in rows.items() if standings.get(subject) == AlertLevel()]
    changed = [
        AlertState(
            kind=kind.value,
            subject=subject,
            level=after.level,
            said_level=after.said_level,
            said_at=after.said_at,
        )
        for subject, after in standings.items()
        if after.said_at is not None and after != _level_of(rows.get(subject))
    ]
    AlertState.objects.filter(pk__in=over).delete()
    AlertState.objects.bulk_create(
        changed,
        update_conflicts=True,
        unique_fields=["kind", "subject"],
        update_fields=["level", "said_level", "said_at"],
    )


def _at(said: NewAlert, now: datetime) -> NewAlert:
    return replace(said, occasion=(now.isoformat(),))


def _say(things: Iterable[NewAlert], now: datetime, zone: ZoneInfo) -> int:
    fitting = [_fitting(said) for said in things]
    wanted = {key: _alert(key, said, now) for said in fitting if (key := _key(said))}
    known = set(Alert.objects.filter(key__in=wanted).values_list("key", flat=True))
    missing = [alert for key, alert in wanted.items() if key not in known]
    if not missing:
        return 0
    # The unique key decides between two processes; `known` above only saves work.
    Alert.objects.bulk_create(missing, ignore_conflicts=True)
    # Read back: of two that say the same at once, one wrote it, and rows have their ids.
    keys = [alert.key for alert in missing]
    said_now = list(Alert.objects.filter(key__in=keys).order_by("at", "pk"))
    Delivery.objects.bulk_create(_deliveries(said_now, now, zone), ignore_conflicts=True)
    return len(said_now)


def _key(said: NewAlert) -> str:
    return _cut_unique(alert_key(said.kind, said.subject, "", said.occasion), _LONGEST_KEY)


def _fitting(said: NewAlert) -> NewAlert:
    """Return what to say with a subject that the column takes."""
    if len(said.subject) <= _LONGEST_SUBJECT:
        return said
    return replace(said, subject=_cut_unique(said.subject, _LONGEST_SUBJECT))


def _cut_unique(text: str, most: int) -> str:
    """Cut a text so that two that differ stay two."""
    if len(text) <= most:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{text[: most - len(digest) - 1]}…{digest}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _alert(key: str, said: NewAlert, now: datetime) -> Alert:
    return Alert(
        key=key,
        kind=said.kind.value,
        subject=said.subject,
        team_id=said.team_id,
        person_id=said.person_id,
        title=_cut(said.title, _LONGEST_TITLE),
        text=_cut(said.text, _LONGEST_TEXT),
        # A path that is cut leads nowhere: then rather none.
        path=said.path if len(said.path) <= _LONGEST_PATH else "",
        at=now,
        urgent=said.urgent,
    )


def _deliveries(alerts: Sequence[Alert], now: datetime, zone: ZoneInfo) -> list[Delivery]:
    channels = list(Channel.objects.filter(active=True).select_related("owner").order_by("pk"))
    mutes = mutes_of([channel.pk for channel in channels], now)
    found = []
    for channel in channels:
        told = [alert for alert in alerts if alert.kind in channel.kinds]
        hears = hearing(channel) if told else None
        found += [
            _delivery(alert, channel, mutes.get(channel.pk, []), now, zone)
            for alert in told
            if hears is not None and hears(alert)
        ]
    return found


def _delivery(
    alert: Alert, channel: Channel, mutes: Iterable[MuteWindow], now: datetime, zone: ZoneInfo
) -> Delivery:
    muted = is_muted(mutes, AlertKind(alert.kind), alert.subject, now)
    # Urgent alerts pass digests and quiet hours, but no mute.
    at = now if alert.urgent else due_at(_schedule(channel, zone), now)
    return Delivery(
        alert=alert,
        channel=channel,
        state=Delivery.State.MUTED if muted else Delivery.State.QUEUED,
        due_at=at if alert.urgent else deliverable_at(at, _quiet(channel, zone)),
    )


def _schedule(channel: Channel, zone: ZoneInfo) -> Schedule:
    return Schedule(Cadence(channel.cadence), zone, channel.at, channel.weekday)


def _quiet(channel: Channel, zone: ZoneInfo) -> list[QuietHours]:
    if channel.quiet_from is None or channel.quiet_to is None:
        return []
    return [QuietHours(channel.quiet_from, channel.quiet_to, zone)]
