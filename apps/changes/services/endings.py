"""The end of an order: the record, the request's state and the audit, in one transaction."""

from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction

from apps.changes.domain.carrying_out import Decision, Do
from apps.changes.domain.states import Action
from apps.changes.models import SERVER_SAID, Execution
from apps.changes.permissions import Actor, portal
from apps.changes.services.moves import Moving, moving

_AFTER_APPLY: Final = {
    Do.APPLIED: Action.CONFIRM_APPLIED,
    Do.BACK_TO_REVIEW: Action.SEND_BACK,
    Do.FAILED: Action.FAIL,
}
TRY_AGAIN: Final = timedelta(hours=1)
"""After so long a revert by date that failed is tried again."""


def finish(
    execution: Execution, decision: Decision, *, after_raw: Any, by: Actor, now: datetime
) -> bool:
    """Write the end down, once; says whether this was the call that did.

    Only who holds the lease can; `by` is who brought the end about. Raises as `moving` does.
    """
    detail = "" if decision.do is Do.APPLIED else execution.detail
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
            mark="done" if decision.do is Do.APPLIED else execution.mark,
            lease_until=None,
        ):
            return False
        action = _action(execution, decision)
        with moving(execution.request_id, by, action.value, now=now) as step:
            # What was found out is the portal's to say, also where a person asked for the end.
            step.act(action, portal())
            step.note = step.request.outcome = decision.sentence
            step.beside.update(
                execution=execution.pk,
                wanted=execution.wanted,
                cluster_before=_told(execution.before_raw),
                cluster_after=_told(after_raw),
                written=decision.written,
                drifted=decision.drifted,
            )
            if detail:
                step.beside[SERVER_SAID] = detail
            _set_dates(step, action, decision)
    return True


def _action(execution: Execution, decision: Decision) -> Action:
    if execution.order == Execution.APPLY:
        return _AFTER_APPLY[decision.do]
    return Action.CONFIRM_REVERTED if decision.do is Do.APPLIED else Action.STOP_REVERT


def _set_dates(step: Moving, action: Action, decision: Decision) -> None:
    request = step.request
    if action is Action.CONFIRM_APPLIED:
        request.applied_at, request.reverts_at = step.now, request.until
        request.announced = 0
    elif action is Action.SEND_BACK:
        request.decided_at = None
    elif action is Action.CONFIRM_REVERTED:
        request.reverts_at = None
    elif action is Action.STOP_REVERT:
        # What somebody else has set since is not taken back: people decide from here on.
        moved_on = decision.do is Do.BACK_TO_REVIEW or request.reverts_at is None
        request.reverts_at = None if moved_on else step.now + TRY_AGAIN


def _told(raw: Any) -> str | None:
    """Return a raw value as text, for the audit holds no floats."""
    return None if raw is None else str(raw)
