"""Orders to execute an approved change: how one begins, what blocks it, and how it ends."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from celery import current_app
from django.conf import settings
from django.db import transaction

from apps.accounts.services import leases
from apps.clusters.gateways import ClusterClients
from apps.clusters.models import Cluster
from apps.quota_requests.domain.execution.executor import (
    ApplyStage,
    Decision,
    NextStep,
    OtherOwner,
    other_owners,
    preview_owners,
)
from apps.quota_requests.domain.execution.patches import Object, PatchFile, uid_of
from apps.quota_requests.domain.quantities import Quantity, counted, quantity, stored
from apps.quota_requests.domain.snapshots import Preview
from apps.quota_requests.domain.states import RequestAction, RequestState, TransitionDenied
from apps.quota_requests.domain.targets import QueueCell, Target
from apps.quota_requests.models import SERVER_SAID, ChangeRequest, Execution
from apps.quota_requests.permissions import Actor, is_written_to, portal
from apps.quota_requests.selectors.requests import check_on_top, goes_back_to, preview_in
from apps.quota_requests.services.evidence.known_quotas import target_of_request
from apps.quota_requests.services.execution.api_calls import RETIRED, check, why_not
from apps.quota_requests.services.transitions import Transition, found, moving


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
    """Return an owner of the limit that no admin agreed to take it over from.

    A change is reverted even if another writer set the same amount meanwhile, or, in a
    ClusterQueue, another of its cells, which to the API server are one field. Only a tool that
    insists on the limit blocks it. After the patch has left, a later writer may have undone it, and
    is never overwritten.
    """
    lenient = (
        execution.order == Execution.REVERT and ApplyStage(execution.mark) is not ApplyStage.SENDING
    )
    for one in other_owners(target, live):
        if one.manager in execution.confirmed:
            continue
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

    Only the holder of the lease can; `by` is the person who ended it. `for_good`: a revert that was
    due is not retried automatically. Owners of the limit that no admin confirmed send it back to
    review: the preview names them from then on. Raises as `moving` does.
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
        action = _ending_action(execution, decision)
        with moving(execution.request_id, by, action.value, now=now) as step:
            # What was found out is the portal's to say, also where a person asked for the end.
            step.act(action, portal())
            step.beside.update(
                execution=execution.pk,
                wanted=execution.wanted,
                cluster_before=_raw_text(execution.before_raw),
                cluster_after=_raw_text(after_raw),
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
        return "Return it with questions, so that it is submitted again for the current limit."
    if action is RequestAction.STOP_REVERT:
        if request.reverts_at is not None:
            return f"The portal takes it back by itself on {request.reverts_at:%Y-%m-%d %H:%M} UTC."
        return "The portal does not take it back by itself: ask for another change, or do it here."
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


def _raw_text(raw: Any) -> str | None:
    """Return a raw value as text, for the audit holds no floats."""
    return None if raw is None else str(raw)


TASK: Final = "quota_requests.carry_out"
_AT_ONCE = 100
_MESSAGE_LASTS = timedelta(seconds=60)


class NotConfirmed(TransitionDenied):
    """Another tool owns the limit, and no admin allowed the portal to take it over."""


def start(
    pk: int,
    *,
    by: Actor,
    version: int | None,
    now: datetime,
    gitops: bool = False,
    confirmed: Collection[str] = (),
) -> int:
    """Begin to apply an approved request; return its version. A worker carries it out.

    `gitops`: nothing is written; the patch file is committed by people, and the portal watches
    until the cluster shows it. `confirmed` are the field managers of `preview.owners` that the
    actor agreed to take the limit over from. Raises UnknownRequest, Conflict, TransitionDenied.
    """
    with moving(pk, by, "apply", now=now, version=version) as step:
        step.act(RequestAction.APPLY)
        request = step.request
        _check_in_time(request, now)
        if not gitops:
            _check_writable(request, confirmed)
        file = _file(request, quantity(request.after), None) if gitops else None
        execution = _write(step, Execution.APPLY, file, confirmed, request.after)
        request.outcome = ""
        _tell(execution)
    return step.request.version


def revert(
    pk: int,
    *,
    by: Actor,
    now: datetime,
    version: int | None = None,
    gitops: bool | None = None,
    clients: ClusterClients | None = None,
) -> int:
    """Begin to take an applied change back; `gitops` None: the way in which it was applied.

    It goes back to what was before it, or, where the time of that is over by now, to what was
    before that. Raises UnknownRequest, Conflict, TransitionDenied; Superseded where a later change
    stands on top of it; KeyTaken where another one is being carried out.
    """
    made = _file_back(found(pk, by), gitops=gitops, clients=clients)
    with moving(pk, by, "revert", now=now, version=version) as step:
        step.act(RequestAction.REVERT)
        request = step.request
        _check_in_catalog(request)
        check_on_top(request)
        last, back = _last_applied(request), goes_back_to(request)
        by_commit = _by_commit(last, gitops=gitops)
        if not by_commit and not is_written_to(request.cluster):
            raise TransitionDenied(why_not(request.cluster))
        file = _file(request, back, made) if by_commit else None
        execution = _write(step, Execution.REVERT, file, last.confirmed, back.text)
        request.outcome = ""
        _tell(execution)
    return step.request.version


def _by_commit(last: Execution, *, gitops: bool | None) -> bool:
    return last.mode == Execution.GITOPS if gitops is None else gitops


def _file_back(
    request: ChangeRequest, *, gitops: bool | None, clients: ClusterClients | None
) -> PatchFile | None:
    """Make the file that takes a change back where the one of its review may not fit any more.

    Before any lock, for the cluster is asked. The file for a queue of Kueue names places in lists,
    which may have been put in another order since.
    """
    if request.state != RequestState.APPLIED.value or not _by_commit(
        _last_applied(request), gitops=gitops
    ):
        return None
    back = goes_back_to(request)
    target, after = target_of_request(request), quantity(request.after)
    fits = not isinstance(target, QueueCell) and back == quantity(request.before)
    preview = preview_in(request)
    if back == after or (fits and preview and preview.revert_file):
        return None
    return check(request.cluster, target, before=after, after=back, clients=clients).patch_file


def _file(request: ChangeRequest, wanted: Quantity, made: PatchFile | None) -> PatchFile:
    """Return the file to commit: as the preview has it, or made anew for another amount."""
    preview = preview_in(request) or Preview()
    held = {request.after: preview.patch_file, request.before: preview.revert_file}
    found = made or held.get(wanted.text)
    if found is None:
        raise TransitionDenied(
            "The patch file could not be created: the quota could not be read as it was "
            "reviewed. Try again, or submit the request again."
        )
    return found


def _check_in_time(request: ChangeRequest, now: datetime) -> None:
    """Refuse what is to be expired, where beat has not come to it yet."""
    _check_in_catalog(request)
    if request.until is not None and request.until <= now:
        raise TransitionDenied("The end of this change has passed: it is not made any more.")
    days = settings.CHANGES_DAYS_APPROVED
    if now - request.changed_at >= timedelta(days=days):
        raise TransitionDenied(
            f"No progress for {counted(days, 'day')}: the reviewed values may be out of date. "
            "Submit a new request."
        )


def _check_in_catalog(request: ChangeRequest) -> None:
    why = retired(request.cluster)
    if why:
        raise TransitionDenied(why)


def _check_writable(request: ChangeRequest, confirmed: Collection[str]) -> None:
    if not is_written_to(request.cluster):
        raise TransitionDenied(why_not(request.cluster))
    preview = preview_in(request) or Preview()
    open_owners = [one for one in preview.owners if one.manager not in confirmed]
    if open_owners:
        raise NotConfirmed(f"{open_owners[0].advice} Choose GitOps mode, or confirm it.")


def applied_by_commit(request: ChangeRequest) -> bool:
    """Say whether an applied change was made by a commit, and is taken back by one. One query."""
    return _last_applied(request).mode == Execution.GITOPS


def _last_applied(request: ChangeRequest) -> Execution:
    rows = request.executions.filter(order=Execution.APPLY, end="applied").order_by("-pk")
    return rows[0]


def _write(
    step: Transition,
    order: str,
    file: PatchFile | None,
    confirmed: Collection[str],
    wanted: str,
) -> Execution:
    request = step.request
    execution = Execution.objects.create(
        request=request,
        order=order,
        mode=Execution.DIRECT if file is None else Execution.GITOPS,
        reviewed=request.after if order == Execution.REVERT else request.before,
        wanted=wanted,
        confirmed=sorted(set(confirmed)),
        patch_file=stored(file) if file else {},
        started_by=step.actor.name,
        started_at=step.now,
        next_at=step.now,
    )
    step.beside.update(
        mode=execution.mode,
        confirmed=execution.confirmed,
        execution=execution.pk,
        wanted=wanted,
    )
    return execution


# ---------------------------------------------------------------- messages


def _tell(execution: Execution) -> None:
    if execution.mode == Execution.DIRECT:
        pk = execution.pk
        transaction.on_commit(lambda: _send(pk), robust=True)


def _send(execution_id: int) -> None:
    current_app.send_task(
        TASK,
        kwargs={"execution_id": execution_id},
        expires=_MESSAGE_LASTS.total_seconds(),
    )


def schedule_executions(*, now: datetime) -> int:
    """Enqueue what is to be carried on now: the database knows, messages are hints.

    Covers lost messages, killed workers and timeouts. Returns how many.
    """
    due = Execution.objects.filter(
        leases.free(now),
        ended_at__isnull=True,
        mode=Execution.DIRECT,
        next_at__lte=now,
    )
    ids = list(due.order_by("next_at", "pk").values_list("pk", flat=True)[:_AT_ONCE])
    for pk in ids:
        _send(pk)
    return len(ids)
