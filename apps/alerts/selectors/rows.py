"""What the read side of alerts hands to pages."""

from dataclasses import dataclass
from datetime import datetime, time


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """What was answered to an idle alert last; `until` None: it can go."""

    person: str
    at: datetime
    reason: str
    until: datetime | None


@dataclass(frozen=True, slots=True)
class AlertRow:
    """One thing said; `team` None: about the platform. `answer` is of idle alerts alone."""

    id: int
    kind: str
    subject: str
    team_id: int | None
    team: str | None
    title: str
    text: str
    path: str
    at: datetime
    urgent: bool
    answer: AnswerRow | None = None


@dataclass(frozen=True, slots=True)
class ChannelRow:
    """Where alerts go; `address` is what of it may be read.

    `team` and `owner` None: of the platform. `last_error` is why something did not arrive, empty
    when nothing failed since something last did.
    """

    id: int
    name: str
    kind: str
    address: str
    team: str | None
    owner: str | None
    kinds: tuple[str, ...]
    cadence: str
    at: time
    weekday: int
    quiet_from: time | None
    quiet_to: time | None
    active: bool
    last_sent_at: datetime | None
    last_error: str


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """One alert on one channel; `due_at` is when it goes out, or would have."""

    id: int
    title: str
    kind: str
    subject: str
    channel: str
    channel_id: int
    state: str
    due_at: datetime
    sent_at: datetime | None
    failures: int
    error: str


@dataclass(frozen=True, slots=True)
class MuteRow:
    """A silence of a channel; `kind` and `subject` empty: any."""

    id: int
    channel: str
    channel_id: int
    kind: str
    subject: str
    start: datetime
    end: datetime
    why: str
    by: str
