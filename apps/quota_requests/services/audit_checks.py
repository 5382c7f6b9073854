"""Checking the whole audit from time to time, and keeping what was found."""

import logging
from datetime import datetime, timedelta
from typing import Final

from apps.accounts.domain.audit import ChainCheck, Head
from apps.accounts.services import audit_head, verify_audit
from apps.quota_requests.models import AuditCheck, ChangeRequest

_LOG = logging.getLogger("gpuportal.audit")
_ROW = 1
_EVERY: Final = timedelta(days=1)
"""How long a check is enough: it reads all of the audit."""


def check_audit_when_due(*, now: datetime) -> bool | None:
    """Check the audit where that was not done for a day; None where it was."""
    last = AuditCheck.objects.filter(pk=_ROW).first()
    if last is not None and last.at > now - _EVERY:
        return None
    return check_audit(now=now)


def check_audit(*, now: datetime) -> bool:
    """Check every entry, and that what held the last time is still there; keep the finding.

    Returns whether it holds. What was written while it ran is left for the next time.
    """
    last = AuditCheck.objects.filter(pk=_ROW).first()
    noted = Head(last.number, last.digest) if last is not None and last.number else None
    upto = audit_head()  # read first: nothing behind it is claimed to be checked
    verdict = verify(noted)
    values: dict[str, object] = {"at": now, "holds": verdict.holds, "words": verdict.words}
    if verdict.holds:
        values |= {"held_at": now}
        if upto is not None:
            values |= {"number": upto.number, "digest": upto.digest}
    else:
        _LOG.error("the audit does not hold: %s", verdict.words)
    AuditCheck.objects.update_or_create(pk=_ROW, defaults=values)
    return verdict.holds


def verify(noted: Head | None = None) -> ChainCheck:
    """Check the whole audit: each quota request was made with an entry."""
    requests = ChangeRequest.objects.count()
    return verify_audit(noted, witnesses=f"{requests} quota requests" if requests else "")
