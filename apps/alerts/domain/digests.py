"""Digests: which alerts go out together and when, their message, and retries of a delivery."""

import hashlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum
from typing import Final
from zoneinfo import ZoneInfo

from msgspec import Struct

from apps.accounts.domain.formats import utc_words
from apps.alerts.domain.alerts import AlertKind

HEADINGS = {
    AlertKind.BUDGET: "Budgets",
    AlertKind.QUOTA: "Quotas",
    AlertKind.IDLE: "Idle GPUs",
    AlertKind.WAIT: "Pending",
    AlertKind.DATA_GAP: "Data gaps",
    AlertKind.DRIFT: "Drift",
    AlertKind.REQUEST: "Quota requests",
    AlertKind.REVERT: "Expiring quotas",
    AlertKind.QUEUE_TIME: "Queue times",
    AlertKind.DIGEST: "Weekly digest",
    AlertKind.CAP: "Cap per person",
}
_LONGEST_SUBJECT = 150
# Teams takes messages of at most 28 kB, with their frame.
_LONGEST_ENTRY, _LONGEST_TEXT = 1000, 10_000
RETRY_DELAYS: Final = (
    timedelta(minutes=1),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=6),
    timedelta(hours=12),
)


class Cadence(StrEnum):
    AT_ONCE = "at once"
    HOURLY = "hourly"
    DAILY = "daily"
    WEEKLY = "weekly"


class Schedule(Struct, frozen=True):
    """When a recipient wants the bundle: `at` on the clock of `zone`, weekly on `weekday`."""

    cadence: Cadence
    zone: ZoneInfo
    at: time = time(8)
    weekday: int = 0


class DigestItem(Struct, frozen=True):
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


class Digest(Struct, frozen=True):
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
    # By key too, so that a bundle tried again leaves out the same and keeps its id.
    kept = sorted(alerts, key=lambda n: (n.at, n.key))[-most:]
    sections = []
    for kind in AlertKind:
        of_kind = tuple(alert for alert in kept if alert.kind is kind)
        if of_kind:
            sections.append((kind, of_kind))
    return Digest(recipient, channel, tuple(sections), len(alerts) - len(kept))


class Message(Struct, frozen=True):
    """What is sent: `subject` is one line, `text` plain, `message_id` the same for a copy.

    `manage` is the page where a reader changes where it goes; empty: it is not known.
    """

    subject: str
    text: str
    message_id: str = ""
    manage: str = ""


def message(digest: Digest, *, message_id: str = "", manage: str = "") -> Message:
    """Return the words of a digest; a single alert is its own subject.

    Each tells when it was noted, since a bundle, and what was tried again, come later.
    """
    alerts = [alert for _, found in digest.sections for alert in found]
    total = len(alerts) + digest.left_out
    if total == 1:
        (alert,) = alerts
        return Message(_line(alert.subject), f"{_entry(alert)}\n", message_id, manage)
    kept = _that_fit(alerts)
    parts = []
    for kind, found in digest.sections:
        heading = HEADINGS[kind]
        entries = [
            f"* {_line(alert.subject)}\n{_indented(_entry(alert))}"
            for alert in found
            if alert.key in kept
        ]
        if entries:
            parts.append("\n\n".join([f"{heading}\n{'-' * len(heading)}", *entries]))
    if total > len(kept):
        parts.append(f"{total - len(kept)} older alerts are in the portal's list alone.")
    counts = ", ".join(f"{HEADINGS[k].lower()} {len(n)}" for k, n in digest.sections)
    return Message(
        _line(f"{total} alerts: {counts}"), "\n\n".join(parts) + "\n", message_id, manage
    )


def _that_fit(alerts: Sequence[DigestItem]) -> frozenset[str]:
    """Return the keys of the latest that a chat takes in one message."""
    kept: list[str] = []
    size = 0
    for alert in sorted(alerts, key=lambda n: (n.at, n.key), reverse=True):
        size += len(_line(alert.subject)) + len(_entry(alert))
        if kept and size > _LONGEST_TEXT:
            break
        kept.append(alert.key)
    return frozenset(kept)


def _entry(alert: DigestItem) -> str:
    text = alert.text
    if len(text) > _LONGEST_ENTRY:
        text = text[: _LONGEST_ENTRY - 1] + "…"
    noted = f"Noted {utc_words(alert.at, now=alert.at)}."
    return "\n".join(part for part in (text, noted, alert.link) if part)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in text.splitlines())


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_SUBJECT else line[: _LONGEST_SUBJECT - 1] + "…"


def retry_at(failures: int, failed_at: datetime) -> datetime | None:
    """Return when to try again after so many failures; None when it is given up.

    A delivery that was given up stays in the log with its error, and can be sent by hand.
    """
    if failures < 1:
        raise ValueError(f"failures must be at least 1, got {failures}")
    return failed_at + RETRY_DELAYS[failures - 1] if failures <= len(RETRY_DELAYS) else None


def message_id(keys: Sequence[str], *, recipient: str, host: str) -> str:
    """Return the Message-ID of a bundle: the same for the same bundle.

    A process killed between sending and recording sends a second copy; mail servers and readers
    drop a message whose id they have seen.
    """
    content = "\n".join([recipient, *sorted(keys)])
    return f"<{hashlib.sha256(content.encode()).hexdigest()[:40]}@{host}>"
