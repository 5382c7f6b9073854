"""Looking ahead from a form: the evidence of its quota key, and what the change would do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.http import QueryDict

from apps.quota_requests import services
from apps.quota_requests.permissions import Actor
from apps.quota_requests.selectors import RequestDetail
from apps.quotas.domain.keys import QuotaRef
from apps.web.query_session import QuerySession
from apps.web.quota_requests import request_input as asking
from apps.web.quota_requests.request_input import RequestForm, said
from apps.web.quota_requests.request_page import REFUSALS, outlook_shown
from apps.web.quota_requests.request_summary import evidence_summary

_NO_AMOUNT = "Say to what the quota is to change, and what it would do is shown here."
_NO_TEAM = "Say for which team, and what it is decided by is shown here."


@dataclass(frozen=True, slots=True)
class FormPreview:
    """What `request/_outlook.html` shows: an outlook, or the evidence alone, and what is amiss."""

    context: Mapping[str, Any] = field(default_factory=dict)


def taken_up(given: QueryDict, detail: RequestDetail) -> QueryDict:
    """Return what was typed into the form of a kept request, whose team is not typed again.

    A day that has passed since may stay as it is: it is nothing to look ahead with.
    """
    typed = given.copy()
    typed["team"], typed["needed_by"] = detail.row.team, ""
    return typed


def ahead(given: QueryDict, ref: QuotaRef, actor: Actor, reading: QuerySession) -> FormPreview:
    """Return what would come of what is typed so far; without an amount what it is decided by."""
    typed = given.copy()
    typed["reason"] = typed.get("reason") or "-"  # to look ahead, none is needed yet
    if not typed.get("after", "").strip():
        return _decided_by(typed, ref, actor, reading, _NO_AMOUNT, is_wrong=False)
    form = RequestForm(typed)
    if not form.is_valid():
        problem = " ".join(str(text) for texts in form.errors.values() for text in texts)
        return _decided_by(typed, ref, actor, reading, problem)
    asked = asking.asked_from(form, ref, reading.choice.zone)
    try:
        found = services.outlook(asked, by=actor, now=reading.now)
    except REFUSALS as refusal:
        return _decided_by(typed, ref, actor, reading, said(refusal))
    return FormPreview(outlook_shown(reading, found, before=typed.get("before", "")))


def _decided_by(
    given: QueryDict,
    ref: QuotaRef,
    actor: Actor,
    reading: QuerySession,
    problem: str,
    *,
    is_wrong: bool = True,
) -> FormPreview:
    """Return the evidence alone, with what is amiss; or, not wrong yet, what is to be typed."""
    word = "outlook_problem" if is_wrong else "outlook_hint"
    try:
        evidence = services.evidence_ahead(
            ref, team=given.get("team") or None, by=actor, now=reading.now
        )
    except REFUSALS as refusal:
        no_team = not given.get("team") and not is_wrong
        return FormPreview({word: _NO_TEAM if no_team else problem if is_wrong else said(refusal)})
    return FormPreview({word: problem, "evidence": evidence_summary(evidence, reading.choice.zone)})
