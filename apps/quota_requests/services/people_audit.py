"""What is done to accounts, teams and tokens, as lines of the audit."""

from apps.accounts.permissions import Visibility
from apps.accounts.services import JournalEntry
from apps.quota_requests.permissions import Actor
from apps.quota_requests.services.audit_log import record


def hear(line: JournalEntry) -> None:
    """Add a line in the transaction that it was sent in. Raises RuntimeError outside of one."""
    by = Actor(line.by.name, line.by.origin, None, Visibility(everything=False))
    record(by, line.action, line.subject, at=line.at, before=line.before, after=line.after)
