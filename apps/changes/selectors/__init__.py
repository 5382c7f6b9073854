"""Reads of quota changes: requests, one with everything, drift, and the audit."""

from apps.changes.selectors.audit import audit_lines, audit_rows, audit_since
from apps.changes.selectors.requests import (
    EVERY_REQUEST,
    drift_rows,
    open_request_of,
    request_detail,
    request_rows,
)
from apps.changes.selectors.rows import (
    AuditRow,
    CommentRow,
    DriftRow,
    ExecutionRow,
    RequestDetail,
    RequestFilters,
    RequestRow,
    Which,
)

__all__ = [
    "EVERY_REQUEST",
    "AuditRow",
    "CommentRow",
    "DriftRow",
    "ExecutionRow",
    "RequestDetail",
    "RequestFilters",
    "RequestRow",
    "Which",
    "audit_lines",
    "audit_rows",
    "audit_since",
    "drift_rows",
    "open_request_of",
    "request_detail",
    "request_rows",
]
