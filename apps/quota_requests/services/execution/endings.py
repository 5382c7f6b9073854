"""The end of an order: the record, the request's state and the audit, in one transaction."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction

from apps.quota_requests.domain.execution.executor import Decision, NextStep
from apps.quota_requests.domain.execution.owners import OtherOwner, preview_owners
from apps.quota_requests.domain.frozen import stored
from apps.quota_requests.domain.states import RequestAction
from apps.quota_requests.models import SERVER_SAID, ChangeRequest, Execution
from apps.quota_requests.permissions import Actor, portal
from apps.quota_requests.services.transitions import Transition, moving

_AFTER_APPLY: Final = {
    NextStep.APPLIED: RequestAction.CONFIRM_APPLIED,
    NextStep.BACK_TO_REVIEW: RequestAction.SEND_BACK,
    NextStep.FAILED: RequestAction.FAIL,
}
TRY_AGAIN: Final = timedelta(hours=1)
"""After so long a revert by date that failed is tried again; each time after twice as long."""
_LATEST_TRY: Final = timedelta(days=1)


def finish(
    execution: Execution,
    decision: Decision,
    *,
    after_raw: Any,
    by: Actor,
    now: datetime,
    for_good: bool = False,
) -> bool:
    """Write the end down, once; says whether this was the call that did.

    Only who holds the lease can; `by` is who brought the end about. `for_good`: a revert that was
    due is not tried again by itself. Owners of the limit whom nobody confirmed are why it goes
    back to review: the preview names them from then on. Raises as `moving` does.
    """
    detail = "" if decision.do is NextStep.APPLIED else execution.detail
    with transaction.atomic():
        mine = Execution.objects.filter(
            pk=execution.pk, lease=execution.lease, ended_at__isnull=True
        )
        if not mine.update(
            end=decision.do.value,
            ended_at=now,
            sentence=decision.sentence,
            detail=detail,
            written=decision.written,
            drifted=decision.drifted,
            after_raw=after_raw,
            mark="done" if decision.do is NextStep.APPLIED else execution.mark,
            lease_until=None,
        ):
            return False
        action = _action(execution, decision)
        with moving(execution.request_id, by, action.value, now=now) as step:
            # What was found out is the portal's to say, also where a person asked for the end.
            step.act(action, portal())
            step.beside.update(
                execution=execution.pk,
                wanted=execution.wanted,
                cluster_before=_as_text(execution.before_raw),
                cluster_after=_as_text(after_raw),
                written=decision.written,
                drifted=decision.drifted,
            )
            if detail:
                step.beside[SERVER_SAID] = detail
            _set_dates(step, action)
            if action is RequestAction.SEND_BACK and decision.owners:
                _name_owners(step, decision.owners)
            if action is RequestAction.STOP_REVERT:
                moved_on = decision.do is NextStep.BACK_TO_REVIEW
                step.request.reverts_at = _next_try(step, for_good=for_good or moved_on)
            now_what = _what_now(step.request, action, decision)
            said = f"{decision.sentence} {now_what}".strip()
            step.note = step.request.outcome = said
    return True


def _name_owners(step: Transition, owners: Sequence[OtherOwner]) -> None:
    """Let the preview name who owns the limit now, so that it can be agreed to when it is applied.

    All else of the preview still holds: the cluster shows the amount that was reviewed.
    """
    told = stored(preview_owners(owners))
    step.request.preview = {**step.request.preview, "owners": told}
    step.beside["owners"] = told


def _what_now(request: ChangeRequest, action: RequestAction, decision: Decision) -> str:
    """Return what people can do after an end that is not what was wanted."""
    if action is RequestAction.SEND_BACK and decision.owners:
        return "Approve it again and confirm that the portal may take the limit over, or commit it."
    if action is RequestAction.SEND_BACK:
        return "Return it with questions, so that it is handed in anew for what is there now."
    if action is RequestAction.STOP_REVERT:
        if request.reverts_at is not None:
            return f"The portal takes it back by itself on {request.reverts_at:%Y-%m-%d %H:%M} UTC."
        return "The portal does not take it back by itself: ask for another change, or do it here."
    if action is RequestAction.CONFIRM_APPLIED and decision.drifted and request.until is not None:
        return "What was set since is not taken back on its end."
    return ""


def _action(execution: Execution, decision: Decision) -> RequestAction:
    if execution.order == Execution.APPLY:
        return _AFTER_APPLY[decision.do]
    return (
        RequestAction.CONFIRM_REVERTED
        if decision.do is NextStep.APPLIED
        else RequestAction.STOP_REVERT
    )


def _set_dates(step: Transition, action: RequestAction) -> None:
    request = step.request
    if action is RequestAction.CONFIRM_APPLIED:
        request.applied_at, request.reverts_at = step.now, request.until
        request.announced = 0
    elif action is RequestAction.SEND_BACK:
        # Whoever decided, a rule too, decided on something else: people do it anew.
        request.decided_at, request.by_rule = None, False
    elif action is RequestAction.CONFIRM_REVERTED:
        request.reverts_at = None


def _next_try(step: Transition, *, for_good: bool) -> datetime | None:
    """Return when a revert that was not made is made by itself; None for never.

    One by hand before its date leaves the date as it was. What somebody else has set since its
    date is not taken back: people decide from then on.
    """
    request = step.request
    if request.reverts_at is None or request.reverts_at > step.now:
        return request.reverts_at
    if for_good:
        return None
    failed = request.executions.filter(order=Execution.REVERT, end=NextStep.FAILED.value).count()
    twice = min(max(failed - 1, 0), 10)
    return step.now + min(TRY_AGAIN * (1 << twice), _LATEST_TRY)


def _as_text(raw: Any) -> str | None:
    """Return a raw value as text, for the audit holds no floats."""
    return None if raw is None else str(raw)
