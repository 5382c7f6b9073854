"""A digest as words: one subject line, and a text that reads without a mark-up."""

from collections.abc import Sequence
from dataclasses import dataclass

from apps.alerts.domain.digest import Digest, DigestItem
from apps.alerts.domain.thresholds import AlertKind

HEADINGS = {
    AlertKind.BUDGET: "Budgets",
    AlertKind.QUOTA: "Quotas",
    AlertKind.IDLE: "Idle GPUs",
    AlertKind.WAIT: "Pending",
    AlertKind.DATA_GAP: "Data gaps",
    AlertKind.DRIFT: "Drift",
    AlertKind.REQUEST: "Quota requests",
    AlertKind.REVERT: "Expiring quotas",
}
_LONGEST_SUBJECT = 150
# Teams takes 28 kB of a card, its frame included.
_LONGEST_ENTRY, _LONGEST_TEXT = 1000, 10_000


@dataclass(frozen=True, slots=True)
class Message:
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
    noted = f"Noted {alert.at:%Y-%m-%d %H:%M} UTC."
    return "\n".join(part for part in (text, noted, alert.link) if part)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in text.splitlines())


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_SUBJECT else line[: _LONGEST_SUBJECT - 1] + "…"
