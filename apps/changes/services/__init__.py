"""Writes of quota changes: asking, deciding, carrying out, watching; each with its audit entry."""

from apps.changes.selectors.stacked import Superseded
from apps.changes.services.ahead import evidence_ahead
from apps.changes.services.audit_checks import check_audit, check_audit_when_due
from apps.changes.services.audit_log import NoHead, read_head, verify, written_head
from apps.changes.services.audit_log import head as audit_head
from apps.changes.services.carrying import carry_out
from apps.changes.services.drifting import accept_drift, look_for_drift
from apps.changes.services.gitops import give_up, watch_gitops
from apps.changes.services.moves import Conflict, KeyTaken, UnknownRequest
from apps.changes.services.outlook import (
    Outlook,
    QuotaToAsk,
    outlook,
    outlook_of,
    quota_to_ask,
)
from apps.changes.services.requests import (
    Asked,
    Edited,
    RequestRefused,
    accept_offer,
    comment,
    create,
    edit,
    submit,
    withdraw,
)
from apps.changes.services.review import approve, ask_changes, reject, release, reopen, take
from apps.changes.services.starting import NotConfirmed, revert, schedule_executions, start
from apps.changes.services.timing import expire, revert_due

__all__ = [
    "Asked",
    "Conflict",
    "Edited",
    "KeyTaken",
    "NoHead",
    "NotConfirmed",
    "Outlook",
    "QuotaToAsk",
    "RequestRefused",
    "Superseded",
    "UnknownRequest",
    "accept_drift",
    "accept_offer",
    "approve",
    "ask_changes",
    "audit_head",
    "carry_out",
    "check_audit",
    "check_audit_when_due",
    "comment",
    "create",
    "edit",
    "evidence_ahead",
    "expire",
    "give_up",
    "look_for_drift",
    "outlook",
    "outlook_of",
    "quota_to_ask",
    "read_head",
    "reject",
    "release",
    "reopen",
    "revert",
    "revert_due",
    "schedule_executions",
    "start",
    "submit",
    "take",
    "verify",
    "watch_gitops",
    "withdraw",
    "written_head",
]
