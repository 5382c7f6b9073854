"""Worker: the chain of the audit checked, and all of it exported.

python -m tests.bench.auditing LINES
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection

from apps.accounts.domain.audit import AuditRecord, Head, next_entry
from apps.accounts.models import AuditEntry, AuditHead
from apps.accounts.services import verify_audit
from apps.quota_requests.permissions import portal
from apps.quota_requests.selectors import audit_texts
from tests.bench.measuring import timed

_START = datetime(2026, 1, 1, tzinfo=UTC)


def measure(lines: str) -> dict[str, Any]:
    """Return seconds of a check and of an export of so many lines."""
    count = int(lines)
    rows = (AuditEntry(**entry._asdict()) for entry in _entries(count))
    AuditEntry.objects.bulk_create(rows, batch_size=1000)
    last = AuditEntry.objects.latest("number")
    AuditHead.objects.create(pk=1, number=last.number, digest=last.digest)
    seen: list[int] = []
    verified = timed(lambda: seen.append(verify_audit().checked))
    exported = timed(lambda: seen.append(sum(1 for _ in audit_texts(portal("bench")))))
    # The last line of an export is the head.
    if seen != [count, count + 1]:
        raise RuntimeError(f"{count} lines were written; checked and exported were {seen}")
    return {
        "verify_seconds": verified.wall,
        "export_seconds": exported.wall,
        "database": connection.vendor,
    }


def _entries(count: int) -> Iterator[AuditRecord]:
    """Yield lines as a request leaves them, with what it was before and after."""
    last: Head | None = None
    for i in range(count):
        state = {"state": "submitted", "quota": "speech/requests.nvidia.com/gpu", "to": str(i)}
        after = {**state, "state": "approved", "tiers": ["a100", "h100"], "reason": "Term starts."}
        entry = next_entry(
            last,
            at=_START + timedelta(seconds=i),
            actor=f"person-{i % 50}",
            origin="192.0.2.7",
            action="approve",
            subject=f"quota-request:{i}",
            before=state,
            after=after,
            note="seen",
        )
        last = Head(entry.number, entry.digest)
        yield entry
