"""Which alerts go out together, and when the next bundle is due."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from apps.alerts.domain.thresholds import AlertKind


class Cadence(StrEnum):
    AT_ONCE = "at once"
    HOURLY = "hourly"
    DAILY = "daily"
    WEEKLY = "weekly"


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a recipient wants the bundle: `at` on the clock of `zone`, weekly on `weekday`."""

    cadence: Cadence
    zone: ZoneInfo
    at: time = time(8)
    weekday: int = 0


@dataclass(frozen=True, slots=True)
class DigestItem:
    """One thing to say. Of several with one `key` the latest counts; `urgent` skips the bundle.

    `link` is the whole address of the page that shows it; empty: there is none.
    """

    key: str
    recipient: str
    channel: str
    kind: AlertKind
    subject: str
    text: str
    at: datetime
    urgent: bool = False
    link: str = ""


@dataclass(frozen=True, slots=True)
class Digest:
    """What goes to a recipient over a channel at one time, by kind; `left_out` were too many."""

    recipient: str
    channel: str
    sections: tuple[tuple[AlertKind, tuple[DigestItem, ...]], ...]
    left_out: int = 0

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of what is in it, to be marked as delivered."""
        return tuple(alert.key for _, alerts in self.sections for alert in alerts)


def due_at(schedule: Schedule, said_at: datetime) -> datetime:
    """Return, in UTC, when an alert of `said_at` goes out.

    Bundles go at whole hours or at the wall-clock time of the zone, also over a change of the
    clocks. What is said exactly at such a time goes with the next one.
    """
    if schedule.cadence is Cadence.AT_ONCE:
        return said_at.astimezone(UTC)
    if schedule.cadence is Cadence.HOURLY:
        hour = said_at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        return hour + timedelta(hours=1)
    day = said_at.astimezone(schedule.zone).date()
    # Over eight days there is always one: a time that is past today, and a weekday.
    for ahead in range(9):
        candidate = day + timedelta(days=ahead)
        if schedule.cadence is Cadence.WEEKLY and candidate.weekday() != schedule.weekday:
            continue
        due = datetime.combine(candidate, schedule.at, schedule.zone).astimezone(UTC)
        if due > said_at:
            return due
    raise ValueError(f"weekday must be 0..6, got {schedule.weekday}")


def digests(alerts: Iterable[DigestItem], *, most: int = 50, most_alone: int = 3) -> list[Digest]:
    """Bundle what is due by recipient and channel; urgent ones come first and stand alone.

    More than `most_alone` urgent ones at once are a bundle too: a hundred clusters that are lost
    together are one message. Within a digest kinds come in their declared order, alerts by time.
    Over `most` the oldest are counted in `left_out`; they stay in the portal's list.
    """
    latest: dict[tuple[str, str, str], DigestItem] = {}
    for alert in sorted(alerts, key=lambda n: (n.at, n.text)):
        latest[alert.recipient, alert.channel, alert.key] = alert
    first: list[Digest] = []
    then: list[Digest] = []
    for to, found in sorted(_groups(latest.values()).items()):
        urgent = [alert for alert in found if alert.urgent]
        others = [alert for alert in found if not alert.urgent]
        if len(urgent) > most_alone:
            first.append(_bundle(*to, urgent, most))
        else:
            first += [_alone(alert) for alert in urgent]
        if others:
            then.append(_bundle(*to, others, most))
    return first + then


def _groups(alerts: Iterable[DigestItem]) -> dict[tuple[str, str], list[DigestItem]]:
    groups: dict[tuple[str, str], list[DigestItem]] = {}
    for alert in alerts:
        groups.setdefault((alert.recipient, alert.channel), []).append(alert)
    return groups


def _alone(alert: DigestItem) -> Digest:
    return Digest(alert.recipient, alert.channel, ((alert.kind, (alert,)),))


def _bundle(recipient: str, channel: str, alerts: Sequence[DigestItem], most: int) -> Digest:
    kept = sorted(alerts, key=lambda n: (n.at, n.key))[-most:]
    sections = []
    for kind in AlertKind:
        of_kind = tuple(alert for alert in kept if alert.kind is kind)
        if of_kind:
            sections.append((kind, of_kind))
    return Digest(recipient, channel, tuple(sections), len(alerts) - len(kept))
