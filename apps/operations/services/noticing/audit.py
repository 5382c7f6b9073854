"""An audit that does not hold: somebody altered it, or a restored database lacks its end."""

from datetime import datetime
from zoneinfo import ZoneInfo

from apps.changes.permissions import portal
from apps.changes.selectors import last_audit_check
from apps.notices.domain.thresholds import Kind
from apps.notices.services import Said, say


def audit(now: datetime, zone: ZoneInfo) -> int:
    """Say once what the last check of the audit found, as long as it does not hold."""
    found = last_audit_check(portal())
    if found is None or found.holds:
        return 0
    said = Said(
        kind=Kind.DATA_GAP,
        subject="audit",
        team_id=None,
        title="The audit does not hold",
        text=f"{found.words} The page of the audit says up to which line it held, and when.",
        path="/audit/",
        urgent=True,
        occasion=(found.words,),
    )
    return say([said], now=now, zone=zone)
