"""Which notices go out together, and when the next bundle is due."""

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
        return tuple(notice.key for _, notices in self.sections for notice in notices)


def due_at(schedule: Schedule, said_at: datetime) -> datetime:
    """Return, in UTC, when a notice of `said_at` goes out.

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


def digests(notices: Iterable[DigestItem], *, most: int = 50, most_alone: int = 3) -> list[Digest]:
    """Bundle what is due by recipient and channel; urgent ones come first and stand alone.

    More than `most_alone` urgent ones at once are a bundle too: a hundred clusters that are lost
    together are one message. Within a digest kinds come in their declared order, notices by time.
    Over `most` the oldest are counted in `left_out`; they stay in the portal's list.
    """
    latest: dict[tuple[str, str, str], DigestItem] = {}
    for notice in sorted(notices, key=lambda n: (n.at, n.text)):
        latest[notice.recipient, notice.channel, notice.key] = notice
    first: list[Digest] = []
    then: list[Digest] = []
    for to, found in sorted(_groups(latest.values()).items()):
        urgent = [notice for notice in found if notice.urgent]
        others = [notice for notice in found if not notice.urgent]
        if len(urgent) > most_alone:
            first.append(_bundle(*to, urgent, most))
        else:
            first += [_alone(notice) for notice in urgent]
        if others:
            then.append(_bundle(*to, others, most))
    return first + then


def _groups(notices: Iterable[DigestItem]) -> dict[tuple[str, str], list[DigestItem]]:
    groups: dict[tuple[str, str], list[DigestItem]] = {}
    for notice in notices:
        groups.setdefault((notice.recipient, notice.channel), []).append(notice)
    return groups


def _alone(notice: DigestItem) -> Digest:
    return Digest(notice.recipient, notice.channel, ((notice.kind, (notice,)),))


def _bundle(recipient: str, channel: str, notices: Sequence[DigestItem], most: int) -> Digest:
    kept = sorted(notices, key=lambda n: (n.at, n.key))[-most:]
    sections = []
    for kind in AlertKind:
        of_kind = tuple(notice for notice in kept if notice.kind is kind)
        if of_kind:
            sections.append((kind, of_kind))
    return Digest(recipient, channel, tuple(sections), len(notices) - len(kept))
