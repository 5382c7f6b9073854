"""An audit that does not hold: somebody altered it, or a restored database lacks its end."""

from datetime import datetime
from zoneinfo import ZoneInfo

from apps.alerts.domain.thresholds import AlertKind
from apps.alerts.services import NewAlert, notify
from apps.quota_requests.permissions import portal
from apps.quota_requests.selectors import last_audit_check


def audit(now: datetime, zone: ZoneInfo) -> int:
    """Say once what the last check of the audit found, as long as it does not hold."""
    found = last_audit_check(portal())
    if found is None or found.holds:
        return 0
    said = NewAlert(
        kind=AlertKind.DATA_GAP,
        subject="audit",
        team_id=None,
        title="The audit does not hold",
        text=f"{found.words} The page of the audit says up to which line it held, and when.",
        path="/audit/",
        urgent=True,
        occasion=(found.words,),
    )
    return notify([said], now=now, zone=zone)
