"""Reads of quota changes: requests, one with everything, drift, and the audit."""

from apps.changes.selectors.audit import (
    EVERY_LINE,
    AuditFilters,
    audit_lines,
    audit_rows,
    audit_since,
)
from apps.changes.selectors.audit_checks import AuditChecked, last_audit_check
from apps.changes.selectors.requests import (
    EVERY_REQUEST,
    drift_rows,
    open_request_of,
    request_detail,
    request_rows,
    writable_clusters,
)
from apps.changes.selectors.review import gitops_file, review_queue, waiting_count
from apps.changes.selectors.rows import (
    Also,
    AuditRow,
    CommentRow,
    DriftRow,
    ExecutionRow,
    RequestDetail,
    RequestFilters,
    RequestRow,
    ReviewRow,
    Which,
)
from apps.changes.selectors.turns import Turns, turns_of

__all__ = [
    "EVERY_LINE",
    "EVERY_REQUEST",
    "Also",
    "AuditChecked",
    "AuditFilters",
    "AuditRow",
    "CommentRow",
    "DriftRow",
    "ExecutionRow",
    "RequestDetail",
    "RequestFilters",
    "RequestRow",
    "ReviewRow",
    "Turns",
    "Which",
    "audit_lines",
    "audit_rows",
    "audit_since",
    "drift_rows",
    "gitops_file",
    "last_audit_check",
    "open_request_of",
    "request_detail",
    "request_rows",
    "review_queue",
    "turns_of",
    "waiting_count",
    "writable_clusters",
]
