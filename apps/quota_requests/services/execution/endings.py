"""How an order ends: what blocks it before a write, and what its end does to the request."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction

from apps.accounts.domain.formats import utc_words
from apps.clusters.models import Cluster
from apps.quota_requests.domain.execution.executor import (
    ApplyStage,
    Decision,
    NextStep,
    OtherOwner,
    other_owners,
    preview_owners,
)
from apps.quota_requests.domain.execution.patches import Object, uid_of
from apps.quota_requests.domain.quantities import stored
from apps.quota_requests.domain.states import RequestAction
from apps.quota_requests.domain.targets import Target
from apps.quota_requests.models import SERVER_SAID, Execution
from apps.quota_requests.permissions import Actor, portal
from apps.quota_requests.selectors.requests import preview_in
from apps.quota_requests.services.execution.api_calls import RETIRED
from apps.quota_requests.services.transitions import RequestTransition, moving

_AFTER_APPLY: Final = {
    NextStep.APPLIED: RequestAction.CONFIRM_APPLIED,
    NextStep.BACK_TO_REVIEW: RequestAction.SEND_BACK,
    NextStep.FAILED: RequestAction.FAIL,
}
TRY_AGAIN: Final = timedelta(hours=1)
"""After so long a revert by date that failed is tried again; each time after twice as long."""
_LATEST_TRY: Final = timedelta(days=1)


def retired(cluster: Cluster) -> str:
    """Return why nothing is changed in a cluster any more; empty where it is in the catalog."""
    return "" if cluster.active else RETIRED.format(cluster.name)


def apply_blockers(
    execution: Execution, target: Target, live: Object, *, now: datetime
) -> Decision | None:
    """Return the end of an order that must not be written any more; None where it may be.

    `live` shows the reviewed amount. What only hinders a raise does not hinder taking it back.
    """
    found = _lasting(execution, now)
    if found:
        return Decision(NextStep.FAILED, f"{_so_far(execution)} {found}")
    preview = preview_in(execution.request)
    # Same name, other object: what was reviewed of the old one says nothing of this one.
    uid = preview.uid if preview and execution.order == Execution.APPLY else ""
    if uid and uid != uid_of(live):
        return Decision(
            NextStep.BACK_TO_REVIEW,
            f"{_so_far(execution)} The {target.source} was deleted and made anew since it was "
            "reviewed.",
        )
    owner = _unconfirmed(execution, target, live)
    if owner is not None:
        text = f"{_so_far(execution)} {owner.advice} No platform admin has confirmed that yet."
        return Decision(NextStep.BACK_TO_REVIEW, text, owners=other_owners(target, live))
    return None


def _unconfirmed(execution: Execution, target: Target, live: Object) -> OtherOwner | None:
    """Return an owner of the limit from whom no admin agreed to take it over.

    A revert is lenient: it goes on if another writer set the same amount meanwhile, or another cell
    of the ClusterQueue, for to the API server all its cells are one field. Only a tool that insists
    on the limit blocks it. Once the patch has left there is no leniency: a later writer may have
    undone it, and is never overwritten.
    """
    lenient = (
        execution.order == Execution.REVERT and ApplyStage(execution.mark) is not ApplyStage.SENDING
    )
    for one in other_owners(target, live):
        if one.manager in execution.confirmed:
            continue
        # A GitOps controller would undo the write at its next sync, so leniency ends here.
        if one.applies or one.reverts or not lenient:
            return one
    return None


def _lasting(execution: Execution, now: datetime) -> str:
    request = execution.request
    why = retired(request.cluster)
    if why:
        return why
    applies = execution.order == Execution.APPLY
    if applies and request.until is not None and request.until <= now:
        return "Its end has passed before it could be made."
    return ""


def _so_far(execution: Execution) -> str:
    if ApplyStage(execution.mark) is ApplyStage.SENDING:
        return f"{execution.wanted} was sent, and the cluster shows {execution.reviewed}."
    return "Nothing was written."


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

    Only the holder of the lease can; `by` is the person who ended it. `for_good`: a revert that was
    due is not retried automatically. Owners of the limit that no admin confirmed send it back to
    review: the preview names them from then on. Raises as `moving` does.
    """
    detail = "" if decision.do is NextStep.APPLIED else execution.detail
    with transaction.atomic():
        mine = Execution.objects.filter(
            pk=execution.pk, lease=execution.lease, ended_at__isnull=True
        )
        # One conditional UPDATE is the fence: a worker that lost its lease changes no row.
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
        action = _ending_action(execution, decision)
        # In the same transaction: else a crash would end the order and leave the request.
        with moving(execution.request_id, by, action.value, now=now) as step:
            # What was found out is the portal's to say, also where a person asked for the end.
            step.act(action, portal())
            step.extras.update(
                execution=execution.pk,
                wanted=execution.wanted,
                cluster_before=_raw_text(execution.before_raw),
                cluster_after=_raw_text(after_raw),
                written=decision.written,
                drifted=decision.drifted,
            )
            if detail:
                step.extras[SERVER_SAID] = detail
            _set_dates(step, action)
            if action is RequestAction.SEND_BACK and decision.owners:
                _name_owners(step, decision.owners)
            if action is RequestAction.STOP_REVERT:
                moved_on = decision.do is NextStep.BACK_TO_REVIEW
                step.request.reverts_at = _next_try(step, for_good=for_good or moved_on)
            now_what = _what_now(step, action, decision)
            said = f"{decision.sentence} {now_what}".strip()
            step.note = step.request.outcome = said
    return True


def _name_owners(step: RequestTransition, owners: Sequence[OtherOwner]) -> None:
    """Let the preview name who owns the limit now, so that it can be agreed to when it is applied.

    All else of the preview still holds: the cluster shows the amount that was reviewed.
    """
    told = stored(preview_owners(owners))
    step.request.preview = {**step.request.preview, "owners": told}
    step.extras["owners"] = told


def _what_now(step: RequestTransition, action: RequestAction, decision: Decision) -> str:
    """Return what people can do after an end that is not what was wanted."""
    request = step.request
    if action is RequestAction.SEND_BACK and decision.owners:
        return "Approve it again and confirm that the portal may take the limit over, or commit it."
    if action is RequestAction.SEND_BACK:
        return "Return it with questions, so that it is submitted again for the current limit."
    if action is RequestAction.STOP_REVERT:
        if request.reverts_at is not None:
            return f"It reverts automatically on {utc_words(request.reverts_at, now=step.now)}."
        return "It does not revert automatically: request another change, or revert it here."
    if action is RequestAction.CONFIRM_APPLIED and decision.drifted and request.until is not None:
        return "What was set since is not taken back on its end."
    return ""


def _ending_action(execution: Execution, decision: Decision) -> RequestAction:
    if execution.order == Execution.APPLY:
        return _AFTER_APPLY[decision.do]
    return (
        RequestAction.CONFIRM_REVERTED
        if decision.do is NextStep.APPLIED
        else RequestAction.STOP_REVERT
    )


def _set_dates(step: RequestTransition, action: RequestAction) -> None:
    request = step.request
    if action is RequestAction.CONFIRM_APPLIED:
        request.applied_at, request.reverts_at = step.now, request.until
        request.announced = 0
    elif action is RequestAction.SEND_BACK:
        # The decision, a rule's too, was on something else: people decide anew.
        request.decided_at, request.by_rule = None, False
    elif action is RequestAction.CONFIRM_REVERTED:
        request.reverts_at = None


def _next_try(step: RequestTransition, *, for_good: bool) -> datetime | None:
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
    # Capped before the shift: years of failures would overflow a timedelta.
    twice = min(max(failed - 1, 0), 10)
    return step.now + min(TRY_AGAIN * (1 << twice), _LATEST_TRY)


def _raw_text(raw: Any) -> str | None:
    """Return a raw value as text, for the audit holds no floats."""
    return None if raw is None else str(raw)
