"""The quota of a request, as the portal knows it and as its cluster shows it."""

from collections import defaultdict
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.db.models import Max
from msgspec import Struct

from apps.accounts.models import Team
from apps.accounts.permissions import Visibility
from apps.clusters.domain.observed.objects import (
    ClusterQueueSnapshot,
    ObservedKind,
    ObservedObject,
    QuotaSnapshot,
    VolcanoQueueSnapshot,
)
from apps.clusters.models import Cluster, WatchCoverage, WatchIssue
from apps.clusters.services import SILENT_SECONDS, TierHistory, observed_objects
from apps.quota_requests.domain.execution.applied_changes import ObservedLimit
from apps.quota_requests.domain.quantities import MOST, Quantity, quantity
from apps.quota_requests.domain.targets import (
    Target,
    TargetRefused,
    VolcanoCell,
    VolcanoField,
    target_of,
)
from apps.quota_requests.models import ChangeRequest
from apps.quotas.domain.keys import QuotaRef, QuotaSource
from apps.quotas.selectors import QuotaRow, quota_row

KINDS: Final = {
    QuotaSource.RESOURCE_QUOTA: ObservedKind.RESOURCE_QUOTA,
    QuotaSource.CLUSTER_QUEUE: ObservedKind.CLUSTER_QUEUE,
    QuotaSource.VOLCANO_QUEUE: ObservedKind.VOLCANO_QUEUE,
}
COLLECTIONS: Final = {
    QuotaSource.RESOURCE_QUOTA: frozenset({"resourcequotas"}),
    QuotaSource.CLUSTER_QUEUE: frozenset({"clusterqueues", "kueue.x-k8s.io"}),
    QuotaSource.VOLCANO_QUEUE: frozenset({"queues", "scheduling.volcano.sh"}),
}
"""The collections and API groups of whose silence the watch leaves a note."""
NOTED: Final = "waiting:"
ON_ITS_WAY: Final = timedelta(seconds=10)
"""What is seen at a moment may show what was there that much earlier."""
SETTLING: Final = timedelta(seconds=SILENT_SECONDS + 30)
"""So long after a collection fell silent the watch notes it; to that what it takes to write."""


class KnownQuota(Struct, frozen=True):
    """A target in its cluster; `row` is its quota as observed, None where there is none."""

    cluster: Cluster
    ref: QuotaRef
    target: Target
    row: QuotaRow | None

    @property
    def amount(self) -> Quantity | None:
        return None if self.row is None else amount_of(self.row.hard)

    @property
    def columns(self) -> dict[str, Any]:
        """What a request for it has in its columns."""
        return {**self.ref._asdict(), "cluster": self.cluster}

    @property
    def seen(self) -> QuotaRow:
        """The row. Raises TargetRefused where there is none."""
        if self.row is None:
            raise TargetRefused(
                f"The portal does not see {self.target} in {self.cluster.name}.",
                fix="Check its name; a quota made just now is there within half a minute.",
            )
        return self.row


def amount_of(units: float) -> Quantity:
    """Return an observed amount as an exact one; Kubernetes keeps billionths.

    As "no limit" people write the most that Kubernetes holds, which a float shows as more.
    """
    return Quantity(min(round(units * 10**9), MOST * 10**9))


def target_of_request(request: ChangeRequest, named: Collection[str] | None = None) -> Target:
    """Return what a stored request is about; it was checked when it was made.

    `named` is what `named_resources` returns: to be given where there are many requests.
    """
    return target_of(request.ref, named=named_resources() if named is None else named)


def reviewed(request: ChangeRequest) -> Quantity:
    return quantity(request.before)


def wanted(request: ChangeRequest) -> Quantity:
    return quantity(request.after)


def known_quota(ref: QuotaRef, *, at: datetime, visibility: Visibility) -> KnownQuota:
    """Return what the reader may see of a quota key. Raises TargetRefused.

    Twelve queries, whatever there is.
    """
    cluster = Cluster.objects.filter(name=ref.cluster, active=True).first()
    if cluster is None:
        raise TargetRefused(f"There is no cluster {ref.cluster}.")
    target = target_of(ref, named=named_resources())
    own = ref._replace(namespace=target.namespace)  # a queue has none, whatever was written
    return KnownQuota(cluster, own, target, quota_row(at, own, visibility=visibility))


def team_asking(known: KnownQuota, team: str | None, *, at: datetime) -> Team:
    """Return whose request it is: who claims the namespace, or, of a queue, one who uses it.

    `team` has to be named where several use a queue. Raises TargetRefused.
    """
    name = team or known.seen.team
    if name is None:
        raise TargetRefused("Several teams use this queue.", fix="Name the team that asks.")
    found = Team.objects.filter(name=name, active=True).first()
    if found is None:
        raise TargetRefused(f"There is no team {name}.")
    own = Visibility(everything=False, team_ids=frozenset({found.pk}))
    # Of a queue that several share only what each team sees says who uses it.
    if name != known.seen.team and quota_row(at, known.ref, visibility=own) is None:
        raise TargetRefused(f"{name} does not use {known.target}.")
    return found


def named_resources() -> frozenset[str]:
    """Return the resources and device classes of tiers, past ones too. Two queries."""
    history = TierHistory.load()
    return history.resources | history.device_classes


def amount_in(one: ObservedObject, target: Target) -> Quantity | None:
    """Return what an observed object shows of a target; None where the key is not in it."""
    body = one.body
    units: float | None = None
    if isinstance(body, QuotaSnapshot):
        units = body.hard.get(target.key)
    elif isinstance(body, ClusterQueueSnapshot):
        found = (q.nominal for q in body.quotas if f"{q.flavor}/{q.resource}" == target.key)
        units = next(found, None)
    elif isinstance(body, VolcanoQueueSnapshot) and isinstance(target, VolcanoCell):
        deserved = target.part is VolcanoField.DESERVED
        units = (body.deserved if deserved else body.capability).get(target.resource)
    return None if units is None else amount_of(units)


def was_seen(cluster_id: int, target: Target, amount: Quantity, *, since: datetime) -> bool:
    """Say whether the target came to show the amount after that time. One query.

    What was seen in the very moment does not count: it may be what was there before.
    """
    seen = observed_objects(cluster_id, [KINDS[target.source]], gone_since=since)
    return any(
        amount_in(one, target) == amount
        for one in seen
        if _is_of(one, target) and one.first > since.timestamp()
    )


def had_amount(cluster_id: int, target: Target, *, since: datetime) -> bool:
    """Say whether the target showed any amount at that time or later. One query."""
    seen = observed_objects(cluster_id, [KINDS[target.source]], gone_since=since)
    return any(_is_of(one, target) and amount_in(one, target) is not None for one in seen)


def shown_now(cluster_id: int, targets: Collection[Target]) -> dict[Target, ObservedLimit]:
    """Return what the targets show, and up to when that is known. Three queries.

    The spans of the watch are those of pods and nodes; a collection of quotas that may not be read,
    or that delivers nothing, has a note beside. Then an object is only known as it was when it was
    last seen to change, and nothing is known of a missing one. Empty where the cluster is not
    watched.
    """
    until = WatchCoverage.objects.filter(cluster=cluster_id).aggregate(until=Max("end"))["until"]
    kinds = {KINDS[target.source] for target in targets}
    if until is None or not kinds:
        return {}
    unheard = _unheard(cluster_id)
    found = {}
    by_place = defaultdict(list)
    for one in observed_objects(cluster_id, kinds):
        by_place[one.kind, one.namespace, one.name].append(one)
    for target in targets:
        own = by_place[KINDS[target.source], target.namespace, target.name]
        newest = max(own, key=lambda one: one.first, default=None)
        # That a collection fell silent is noted late: only what is older than that is certain.
        known = [] if COLLECTIONS[target.source] & unheard else [until - SETTLING]
        if newest is not None:
            # Its last change was seen, whatever became of the collection since.
            known.append(datetime.fromtimestamp(newest.changed, UTC) - ON_ITS_WAY)
        if known:
            amount = None if newest is None else amount_in(newest, target)
            found[target] = ObservedLimit(amount, exists=newest is not None, at=max(known))
    return found


def _unheard(cluster_id: int) -> frozenset[str]:
    """Return the collections and API groups that the watch cannot follow now. One query."""
    rows = WatchIssue.objects.filter(cluster=cluster_id, subject__startswith=NOTED)
    subjects = rows.order_by("subject").values_list("subject", flat=True)
    return frozenset(subject.removeprefix(NOTED) for subject in subjects)


def _is_of(one: ObservedObject, target: Target) -> bool:
    return (
        one.kind is KINDS[target.source]
        and one.namespace == target.namespace
        and one.name == target.name
    )
