"""What came in between an approval and its write, so that the write is not made any more.

Looked at right before each step that leads to a write, not once at the start: hours may lie between
two steps of an order whose worker was killed.
"""

from datetime import datetime

from apps.clusters.models import Cluster
from apps.quota_requests.domain.execution.executor import ApplyStage, Decision, NextStep
from apps.quota_requests.domain.execution.owners import OtherOwner, other_owners
from apps.quota_requests.domain.execution.patches import Object, uid_of
from apps.quota_requests.domain.targets import Target
from apps.quota_requests.models import Execution
from apps.quota_requests.selectors.snapshots import preview_in
from apps.quota_requests.services.execution.api_calls import RETIRED


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
        text = f"{_so_far(execution)} {owner.advice} Nobody has confirmed that yet."
        return Decision(NextStep.BACK_TO_REVIEW, text, owners=other_owners(target, live))
    return None


def _unconfirmed(execution: Execution, target: Target, live: Object) -> OtherOwner | None:
    """Return an owner of the limit that nobody agreed to take it over from.

    A change is taken back although somebody set the same amount meanwhile, or, in a ClusterQueue,
    another of its cells, which to the API server are one field: only a tool that insists on the
    limit stands in the way. Once the patch has left, whoever set the limit since may have undone
    it, and is never written over.
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
