"""What clusters show after an approval: commits of GitOps mode, and drift kept as intervals."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db import transaction

from apps.accounts.permissions import NotAllowed
from apps.accounts.services import record
from apps.clusters.models import Cluster
from apps.quota_requests.domain.execution.applied_changes import (
    AppliedLimit,
    Drift,
    Key,
    ObservedLimit,
    drifts,
)
from apps.quota_requests.domain.execution.executor import Decision, NextStep
from apps.quota_requests.domain.quantities import counted, quantity
from apps.quota_requests.domain.states import TransitionDenied
from apps.quota_requests.models import ChangeRequest, DriftInterval, Execution
from apps.quota_requests.permissions import Actor, portal
from apps.quota_requests.services.evidence.known_quotas import (
    had_amount,
    named_resources,
    shown_now,
    target_of_request,
)
from apps.quota_requests.services.execution.endings import finish
from apps.quota_requests.services.transitions import found

GRACE: Final = timedelta(minutes=10)
"""So long a limit may be away: some tools delete a quota and make it anew to change it."""


def detect_drift(*, now: datetime) -> int:
    """Compare what was applied last with what clusters show; return how many drifts are open.

    A drift that is found, that changes or that ends is written to the audit, once each.
    """
    named = named_resources()
    changes = list(_applied(named))
    shown = _shown(changes)
    for key in _being_changed(named):
        # Between the write and its record the cluster shows what is only about to be applied.
        shown.pop(key, None)
    there = {one.request_id: one for one in drifts(changes, shown)}
    kept = {
        row.request_id: row
        for row in DriftInterval.objects.filter(ended_at__isnull=True)
        .select_related("request__cluster")
        .order_by("pk")
    }
    known = _known_requests(changes, shown)
    # What a retired cluster shows is never fixed; it would alert for ever.
    known |= {pk for pk, row in kept.items() if not row.request.cluster.active}
    for pk in sorted({*there, *kept}):
        _bring_up_to_date(there.get(pk), kept.get(pk), now, known=pk in known)
    return DriftInterval.objects.filter(ended_at__isnull=True, accepted_by="").count()


def _applied(named: Collection[str]) -> Iterable[AppliedLimit]:
    """Yield every order that took effect in an active cluster, whether apply or revert."""
    rows = Execution.objects.filter(end="applied", request__cluster__active=True)
    for row in rows.select_related("request__cluster").order_by("pk"):
        if row.ended_at is not None:
            yield AppliedLimit(
                row.request_id,
                row.request.cluster.name,
                target_of_request(row.request, named),
                quantity(row.wanted),
                row.ended_at,
                back=row.order == Execution.REVERT,
            )


def _being_changed(named: Collection[str]) -> Iterable[Key]:
    rows = Execution.objects.filter(ended_at__isnull=True).select_related("request__cluster")
    for row in rows.order_by("pk"):
        yield row.request.cluster.name, target_of_request(row.request, named)


def _shown(changes: Iterable[AppliedLimit]) -> dict[Key, ObservedLimit]:
    targets = defaultdict(set)
    for change in changes:
        targets[change.cluster].add(change.target)
    ids = dict(Cluster.objects.filter(name__in=targets).values_list("name", "pk"))
    return {
        (name, target): shown
        for name, of_cluster in targets.items()
        for target, shown in shown_now(ids[name], of_cluster).items()
    }


def _known_requests(changes: Iterable[AppliedLimit], shown: dict[Key, ObservedLimit]) -> set[int]:
    """Return the requests whose target was seen since their change: only these can be judged."""
    # A view from before the write shows the old amount, and would be taken for drift.
    latest: dict[Key, datetime] = {}
    listed = list(changes)
    for change in listed:
        key = (change.cluster, change.target)
        latest[key] = max(change.at, latest.get(key, change.at))
    return {
        change.request_id
        for change in listed
        if (key := (change.cluster, change.target)) in shown and shown[key].at >= latest[key]
    }


def _bring_up_to_date(
    drift: Drift | None, kept: DriftInterval | None, now: datetime, *, known: bool
) -> None:
    if kept is not None and (drift is None or not _is_same(drift, kept)):
        if drift is None and not known:
            return
        _close(kept, now)
        kept = None
    if drift is not None and kept is None:
        _open(drift, now)


def _is_same(drift: Drift, kept: DriftInterval) -> bool:
    return (drift.kind.value, drift.approved.text, _live(drift)) == (
        kept.kind,
        kept.approved,
        kept.live,
    )


def _live(drift: Drift) -> str:
    return "" if drift.live is None else drift.live.text


@transaction.atomic
def _open(drift: Drift, now: datetime) -> None:
    request = ChangeRequest.objects.select_for_update().get(pk=drift.request_id)
    # With the request locked: two beats at once would note the same drift twice.
    _, made = DriftInterval.objects.get_or_create(
        request=request,
        ended_at__isnull=True,
        defaults={
            "kind": drift.kind.value,
            "approved": drift.approved.text,
            "live": _live(drift),
            "sentence": drift.sentence,
            "found_at": now,
        },
    )
    if made:
        after = {"approved": drift.approved.text, "live": _live(drift), "kind": drift.kind.value}
        subject = request.audit_subject
        record(portal("beat"), "drift", subject, at=now, after=after, note=drift.sentence)


@transaction.atomic
def _close(kept: DriftInterval, now: datetime) -> None:
    request = ChangeRequest.objects.select_for_update().get(pk=kept.request_id)
    # The audit gets a line only from the process that really closed it.
    if DriftInterval.objects.filter(pk=kept.pk, ended_at__isnull=True).update(ended_at=now):
        before = {"approved": kept.approved, "live": kept.live, "kind": kept.kind}
        record(portal("beat"), "drift_ended", request.audit_subject, at=now, before=before)


def accept_drift(pk: int, *, by: Actor, now: datetime, note: str = "") -> None:
    """Take what the cluster shows for right: the drift of a request no longer alerts.

    Only for platform admins. Raises UnknownRequest, NotAllowed, TransitionDenied.
    """
    request = found(pk, by)
    if by.person is None or not by.person.admin:
        raise NotAllowed("Only platform admins can accept a drift.")
    with transaction.atomic():
        row = DriftInterval.objects.select_for_update().filter(
            request=request, ended_at__isnull=True, accepted_by=""
        )
        interval = row.first()
        if interval is None:
            raise TransitionDenied("The cluster shows what was approved, or it was accepted.")
        interval.accepted_by = by.name
        interval.save(update_fields=["accepted_by"])
        after = {"approved": interval.approved, "live": interval.live}
        record(by, "accept_drift", request.audit_subject, at=now, after=after, note=note)


def watch_gitops(*, now: datetime) -> int:
    """End the orders whose commit the cluster shows, or that something came in between of.

    Returns how many ended. What `watch` saw since an order began decides; without a live watch only
    the timeout decides.
    """
    rows = Execution.objects.filter(mode=Execution.GITOPS, ended_at__isnull=True)
    ended, named = 0, named_resources()
    for execution in rows.select_related("request__cluster").order_by("pk"):
        decision = _commit_decision(execution, named, now)
        if decision is not None:
            ended += _finish_commit(execution, decision, portal("beat"), now)
    return ended


def give_up(pk: int, *, by: Actor, now: datetime) -> None:
    """End an order in GitOps mode whose commit will not come; the cluster stays as it is.

    Only for platform admins. Raises UnknownRequest, NotAllowed, TransitionDenied.
    """
    request = found(pk, by)
    if by.person is None or not by.person.admin:
        raise NotAllowed("Only platform admins can stop tracking a commit.")
    execution = request.executions.filter(mode=Execution.GITOPS, ended_at__isnull=True).first()
    if execution is None:
        raise TransitionDenied("This request expects no commit.")
    words = f"{by.name} stopped tracking the commit: it never arrived."
    decision = Decision(NextStep.FAILED, words)
    # Who gives a revert up does not want to be asked for it again within the hour.
    finish(execution, decision, after_raw=None, by=by, now=now, for_good=True)


def _finish_commit(execution: Execution, decision: Decision, by: Actor, now: datetime) -> bool:
    shown = None if decision.do is not NextStep.APPLIED else execution.wanted
    return finish(execution, decision, after_raw=shown, by=by, now=now)


def _commit_decision(
    execution: Execution, named: Collection[str], now: datetime
) -> Decision | None:
    target = target_of_request(execution.request, named)
    cluster = execution.request.cluster_id
    shown = shown_now(cluster, [target]).get(target)
    # An older observation may show a value from before the order, and end it wrongly.
    if shown is not None and shown.at >= execution.started_at:
        # Some tools delete and recreate a quota; a short absence is no end.
        if shown.amount is None and had_amount(cluster, target, since=now - GRACE):
            return None
        decision = _decision_by_sight(execution, shown)
        if decision is not None:
            return decision
    days = settings.REQUESTS_DAYS_TO_COMMIT
    if now - execution.started_at >= timedelta(days=days):
        words = f"The cluster did not show {execution.wanted} within {counted(days, 'day')}."
        return Decision(NextStep.FAILED, words)
    return None


def _decision_by_sight(execution: Execution, shown: ObservedLimit) -> Decision | None:
    if shown.amount is None:
        gone = "no longer has this limit" if shown.exists else "no longer has the quota"
        return Decision(NextStep.FAILED, f"Nothing was changed: the cluster {gone}.")
    if shown.amount == quantity(execution.wanted):
        return Decision(NextStep.APPLIED, f"The cluster shows {execution.wanted}, by commit.")
    if shown.amount != quantity(execution.reviewed):
        return Decision(
            NextStep.BACK_TO_REVIEW,
            f"The cluster shows {shown.amount}, neither {execution.reviewed} that was reviewed "
            f"nor {execution.wanted}.",
        )
    return None
