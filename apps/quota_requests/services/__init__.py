"""Writes of quota changes: asking, deciding, carrying out, watching; each with its audit entry."""

from apps.quota_requests.domain.states import AUDIT_WORDS
from apps.quota_requests.selectors.requests import Superseded
from apps.quota_requests.services.actions import (
    ACTIONS,
    Action,
    ActionInput,
    ActionTakes,
)
from apps.quota_requests.services.audit_checks import check_audit, check_audit_when_due, verify
from apps.quota_requests.services.evidence.outlook import (
    Outlook,
    QuotaToAsk,
    evidence_ahead,
    outlook,
    outlook_of,
    quota_to_ask,
)
from apps.quota_requests.services.execution.drift import (
    accept_drift,
    detect_drift,
    give_up,
    watch_gitops,
)
from apps.quota_requests.services.execution.executor import carry_out
from apps.quota_requests.services.execution.orders import (
    NotConfirmed,
    revert,
    schedule_executions,
    start,
)
from apps.quota_requests.services.policy_requests import request_limits
from apps.quota_requests.services.requests import (
    Edited,
    RequestInput,
    RequestRefused,
    accept_offer,
    approve,
    ask_changes,
    comment,
    create,
    edit,
    reject,
    release,
    reopen,
    submit,
    take,
    withdraw,
)
from apps.quota_requests.services.timing import expire, revert_due, start_due
from apps.quota_requests.services.transitions import Conflict, KeyTaken, UnknownRequest
