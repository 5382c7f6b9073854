"""Reads of quota changes: requests, one with everything, drift, and the audit."""

from apps.quota_requests.selectors.audit import (
    AuditFilters,
    audit_rows,
    audit_since,
    audit_texts,
    last_audit_check,
)
from apps.quota_requests.selectors.bookings import (
    BOOKED_SOON,
    BookingRow,
    TierBookings,
    bookings_ahead,
    team_bookings,
    tier_bookings,
    upcoming_bookings,
)
from apps.quota_requests.selectors.requests import (
    KeyChange,
    drift_rows,
    key_changes,
    open_request_of,
    read,
    request_detail,
    request_rows,
    writable_clusters,
)
from apps.quota_requests.selectors.review import (
    Turns,
    gitops_file,
    pending_count,
    queue_neighbors,
    review_queue,
    turn_counts,
    turns_in,
)
from apps.quota_requests.selectors.rows import (
    AuditRow,
    CommentRow,
    RequestDetail,
    RequestFilters,
    RequestList,
    RequestRow,
    ReviewRow,
)
