"""What the last check of the whole audit found."""

from dataclasses import dataclass
from datetime import datetime

from apps.quota_requests.models import AuditCheck
from apps.quota_requests.permissions import Actor
from apps.quota_requests.selectors.audit import check_read


@dataclass(frozen=True, slots=True)
class AuditChecked:
    """`number` is the last line that a check found whole (0: none yet), `held_at` when.

    `words` say what the check of `at` found.
    """

    at: datetime
    holds: bool
    words: str
    number: int
    held_at: datetime | None


def last_audit_check(actor: Actor) -> AuditChecked | None:
    """Return the last check; None before the first. One query. Raises NotAllowed."""
    check_read(actor)
    row = AuditCheck.objects.order_by("pk").first()
    if row is None:
        return None
    return AuditChecked(row.at, row.holds, row.words, row.number, row.held_at)
