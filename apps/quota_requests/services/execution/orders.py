"""Orders to execute an approved change, and to take one back: how they begin."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final

from celery import current_app
from django.conf import settings
from django.db import transaction

from apps.accounts.domain.formats import duration
from apps.accounts.services import leases
from apps.clusters.gateways import ClusterClients
from apps.quota_requests.domain.execution.patches import PatchFile
from apps.quota_requests.domain.quantities import Quantity, counted, quantity, stored
from apps.quota_requests.domain.snapshots import ImpactPreview
from apps.quota_requests.domain.states import RequestAction, RequestState, TransitionDenied
from apps.quota_requests.domain.targets import QueueCell
from apps.quota_requests.models import ChangeRequest, Execution
from apps.quota_requests.permissions import Actor, is_written_to
from apps.quota_requests.selectors.requests import check_on_top, goes_back_to, preview_in
from apps.quota_requests.services.evidence.known_quotas import target_of_request
from apps.quota_requests.services.execution.api_calls import check, why_not
from apps.quota_requests.services.execution.endings import retired
from apps.quota_requests.services.transitions import RequestTransition, found, moving

TASK: Final = "quota_requests.carry_out"
_AT_ONCE = 100
# The order is in the database, where beat finds it again: an old message would come on top.
_LATE = timedelta(minutes=5)
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
        if request.starts_at is not None and now - request.starts_at > _LATE:
            step.note = (
                f"Started {duration((now - request.starts_at).total_seconds())} after its start."
            )
        # Beat expires requests only now and then; an expired one must not start meanwhile.
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
    # Outside the transaction: no row lock is held while the cluster is asked.
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
        # Owners that were confirmed for the raise are not asked about again on its way back.
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
    preview = preview_in(request) or ImpactPreview()
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
    days = settings.REQUESTS_DAYS_APPROVED
    if now - max(request.changed_at, request.starts_at or request.changed_at) >= timedelta(
        days=days
    ):
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
    preview = preview_in(request) or ImpactPreview()
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
    step: RequestTransition,
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
    step.extras.update(
        mode=execution.mode,
        confirmed=execution.confirmed,
        execution=execution.pk,
        wanted=wanted,
    )
    return execution


def _tell(execution: Execution) -> None:
    if execution.mode == Execution.DIRECT:
        pk = execution.pk
        # A worker must not look before the row is there. Robust: without a broker beat finds it.
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
