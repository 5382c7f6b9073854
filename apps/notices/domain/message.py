"""A digest as words: one subject line, and a text that reads without a mark-up."""

from dataclasses import dataclass

from apps.notices.domain.digest import Digest, Notice
from apps.notices.domain.thresholds import Kind

HEADINGS = {
    Kind.BUDGET: "Budgets",
    Kind.QUOTA: "Quotas",
    Kind.IDLE: "Idle GPUs",
    Kind.WAIT: "Waiting",
    Kind.DATA_GAP: "Data gaps",
    Kind.DRIFT: "Drift",
    Kind.REQUEST: "Quota requests",
    Kind.REVERT: "Quotas that go back",
}
_LONGEST_SUBJECT = 150


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent: `subject` is one line, `text` plain, `message_id` the same for a copy."""

    subject: str
    text: str
    message_id: str = ""


def message(digest: Digest, *, message_id: str = "") -> Message:
    """Return the words of a digest; a single notice is its own subject."""
    notices = [notice for _, found in digest.sections for notice in found]
    if len(notices) == 1 and not digest.left_out:
        return Message(_line(notices[0].subject), _body(notices[0]), message_id)
    parts = []
    for kind, found in digest.sections:
        heading = HEADINGS[kind]
        entries = [f"* {notice.subject}\n{_indented(notice.text)}" for notice in found]
        parts.append("\n\n".join([f"{heading}\n{'-' * len(heading)}", *entries]))
    if digest.left_out:
        parts.append(f"{digest.left_out} older notices are in the portal's list alone.")
    total = len(notices) + digest.left_out
    counts = ", ".join(f"{HEADINGS[k].lower()} {len(n)}" for k, n in digest.sections)
    return Message(_line(f"{total} notices: {counts}"), "\n\n".join(parts) + "\n", message_id)


def _body(notice: Notice) -> str:
    return f"{notice.text}\n"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in text.splitlines())


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_SUBJECT else line[: _LONGEST_SUBJECT - 1] + "…"
