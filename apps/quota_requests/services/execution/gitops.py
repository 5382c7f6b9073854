"""GitOps mode: people commit the patch file, and the portal watches until the cluster shows it."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings

from apps.accounts.permissions import NotAllowed
from apps.quota_requests.domain.execution.drift import ObservedLimit
from apps.quota_requests.domain.execution.executor import Decision, NextStep
from apps.quota_requests.domain.quantities import counted, quantity
from apps.quota_requests.domain.states import TransitionDenied
from apps.quota_requests.models import Execution
from apps.quota_requests.permissions import Actor, portal
from apps.quota_requests.services.evidence.known_quotas import named_resources, target_of_request
from apps.quota_requests.services.evidence.observed_limits import had_amount, shown_now
from apps.quota_requests.services.execution.endings import finish
from apps.quota_requests.services.transitions import found

GRACE: Final = timedelta(minutes=10)
"""So long a limit may be away: some tools delete a quota and make it anew to change it."""


def watch_gitops(*, now: datetime) -> int:
    """End the orders whose commit the cluster shows, or that something came in between of.

    Returns how many ended. What `watch` saw since an order began decides; where nobody watches the
    cluster nothing is decided but that the time is over.
    """
    rows = Execution.objects.filter(mode=Execution.GITOPS, ended_at__isnull=True)
    ended, named = 0, named_resources()
    for execution in rows.select_related("request__cluster").order_by("pk"):
        decision = _decision(execution, named, now)
        if decision is not None:
            ended += _finish(execution, decision, portal("beat"), now)
    return ended


def give_up(pk: int, *, by: Actor, now: datetime) -> None:
    """End an order in GitOps mode that nobody is going to commit; the cluster stays as it is.

    Only for platform admins. Raises UnknownRequest, NotAllowed, TransitionDenied.
    """
    request = found(pk, by)
    if by.person is None or not by.person.admin:
        raise NotAllowed("Only platform admins can give a change up that waits for its commit.")
    execution = request.executions.filter(mode=Execution.GITOPS, ended_at__isnull=True).first()
    if execution is None:
        raise TransitionDenied("Nothing waits for a commit here.")
    words = f"Nothing was committed; {by.name} gave it up."
    decision = Decision(NextStep.FAILED, words)
    # Who gives a revert up does not want to be asked for it again within the hour.
    finish(execution, decision, after_raw=None, by=by, now=now, for_good=True)


def _finish(execution: Execution, decision: Decision, by: Actor, now: datetime) -> bool:
    shown = None if decision.do is not NextStep.APPLIED else execution.wanted
    return finish(execution, decision, after_raw=shown, by=by, now=now)


def _decision(execution: Execution, named: Collection[str], now: datetime) -> Decision | None:
    target = target_of_request(execution.request, named)
    cluster = execution.request.cluster_id
    shown = shown_now(cluster, [target]).get(target)
    if shown is not None and shown.at >= execution.started_at:
        if shown.amount is None and had_amount(cluster, target, since=now - GRACE):
            return None
        decision = _by_sight(execution, shown)
        if decision is not None:
            return decision
    days = settings.CHANGES_DAYS_TO_COMMIT
    if now - execution.started_at >= timedelta(days=days):
        words = f"The cluster did not show {execution.wanted} within {counted(days, 'day')}."
        return Decision(NextStep.FAILED, words)
    return None


def _by_sight(execution: Execution, shown: ObservedLimit) -> Decision | None:
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
