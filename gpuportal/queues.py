"""The queues of Celery, and which task goes to which: none stands behind another kind of work."""

from typing import Final

COLLECT: Final = "collect"
PENDING: Final = "pending"
EXPORTS: Final = "exports"
ALERTS: Final = "alerts"
QUOTA_REQUESTS: Final = "quota_requests"
QUEUES: Final = (COLLECT, PENDING, EXPORTS, ALERTS, QUOTA_REQUESTS)

# Exact names win over patterns. What is named nowhere is collected, or computed from that.
ROUTES: Final = {
    "pending.*": {"queue": PENDING},
    "costs.write_export": {"queue": EXPORTS},
    "costs.tend_exports": {"queue": EXPORTS},
    "costs.keep_closed_files": {"queue": EXPORTS},
    "alerts.*": {"queue": ALERTS},
    "operations.*": {"queue": ALERTS},
    "quotas.note_budget_alerts": {"queue": ALERTS},
    "costs.note_money_alerts": {"queue": ALERTS},
    "quota_requests.*": {"queue": QUOTA_REQUESTS},
    # The whole audit is read once a day, which an approved change must not wait for.
    "quota_requests.check_audit": {"queue": ALERTS},
}
