"""Reads of quota changes: requests, one with everything, drift, and the audit."""

from apps.quota_requests.selectors.audit import (
    EVERY_LINE,
    AuditFilters,
    audit_lines,
    audit_rows,
    audit_since,
)
from apps.quota_requests.selectors.audit_checks import AuditChecked, last_audit_check
from apps.quota_requests.selectors.requests import (
    EVERY_REQUEST,
    drift_rows,
    open_request_of,
    request_detail,
    request_rows,
    writable_clusters,
)
from apps.quota_requests.selectors.review import gitops_file, review_queue, waiting_count
from apps.quota_requests.selectors.rows import (
    AuditRow,
    CommentRow,
    DriftRow,
    ExecutionRow,
    RequestDetail,
    RequestExtra,
    RequestFilters,
    RequestList,
    RequestRow,
    ReviewRow,
)
from apps.quota_requests.selectors.snapshots import read
from apps.quota_requests.selectors.turns import Turns, turns_of
