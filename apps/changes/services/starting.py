"""Beginning to carry out: the order is written down, and a worker is told of it."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any, Final

from celery import current_app
from django.db import transaction
from django.db.models import Q

from apps.changes.domain.states import Action, TransitionDenied
from apps.changes.models import ChangeRequest, Execution
from apps.changes.permissions import Actor
from apps.changes.services.asking import NO_WRITER, has_writer
from apps.changes.services.moves import Moving, moving

TASK: Final = "changes.carry_out"
_AT_ONCE = 100
_MESSAGE_LASTS = timedelta(seconds=60)


class NotConfirmed(TransitionDenied):
    """Another tool owns the limit, and nobody said that the portal may take it over."""


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
        step.act(Action.APPLY)
        request = step.request
        if request.until is not None and request.until <= now:
            raise TransitionDenied("The end of this change has passed: it is not made any more.")
        if not gitops:
            _check_writable(request, confirmed)
        execution = _write(step, Execution.APPLY, gitops=gitops, confirmed=confirmed)
        request.outcome = ""
        _tell(execution)
    return step.request.version


def revert(
    pk: int, *, by: Actor, now: datetime, version: int | None = None, gitops: bool | None = None
) -> int:
    """Begin to take an applied change back; `gitops` None: the way in which it was applied.

    Raises UnknownRequest, Conflict, TransitionDenied; KeyTaken where another request for the key
    is open.
    """
    with moving(pk, by, "revert", now=now, version=version) as step:
        step.act(Action.REVERT)
        last = _last_applied(step.request)
        by_commit = last.mode == Execution.GITOPS if gitops is None else gitops
        if not by_commit and not has_writer(step.request.cluster):
            raise TransitionDenied(NO_WRITER)
        execution = _write(step, Execution.REVERT, gitops=by_commit, confirmed=last.confirmed)
        step.request.outcome = ""
        _tell(execution)
    return step.request.version


def _check_writable(request: ChangeRequest, confirmed: Collection[str]) -> None:
    if not has_writer(request.cluster):
        raise TransitionDenied(NO_WRITER)
    owners = request.preview.get("owners") or []
    open_owners = [one for one in owners if one["manager"] not in confirmed]
    if open_owners:
        raise NotConfirmed(f"{open_owners[0]['advice']} Choose GitOps mode, or confirm it.")


def _last_applied(request: ChangeRequest) -> Execution:
    rows = request.executions.filter(order=Execution.APPLY, end="applied").order_by("-pk")
    return rows[0]


def _write(step: Moving, order: str, *, gitops: bool, confirmed: Collection[str]) -> Execution:
    request = step.request
    back = order == Execution.REVERT
    execution = Execution.objects.create(
        request=request,
        order=order,
        mode=Execution.GITOPS if gitops else Execution.DIRECT,
        reviewed=request.after if back else request.before,
        wanted=request.before if back else request.after,
        confirmed=sorted(set(confirmed)),
        patch_file=_file(request, back=back) if gitops else {},
        started_by=step.actor.name,
        started_at=step.now,
        next_at=step.now,
    )
    step.beside.update(mode=execution.mode, confirmed=execution.confirmed, execution=execution.pk)
    return execution


def _file(request: ChangeRequest, *, back: bool) -> dict[str, Any]:
    """Return the file to commit, as the preview has it."""
    found = request.preview.get("revert_file" if back else "patch_file")
    if not found:
        raise TransitionDenied(
            "The patch file could not be made, for the quota could not be read: hand it in anew."
        )
    return dict(found)


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

    Covers lost messages, killed workers and waits that are over. Returns how many.
    """
    due = Execution.objects.filter(
        Q(lease_until__isnull=True) | Q(lease_until__lte=now),
        ended_at__isnull=True,
        mode=Execution.DIRECT,
        next_at__lte=now,
    )
    ids = list(due.order_by("next_at", "pk").values_list("pk", flat=True)[:_AT_ONCE])
    for pk in ids:
        _send(pk)
    return len(ids)
