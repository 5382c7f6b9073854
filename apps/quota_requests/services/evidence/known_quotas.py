"""The quota key that a request is about, as the portal knows it."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from apps.accounts.models import Team
from apps.accounts.permissions import Visibility
from apps.clusters.models import Cluster
from apps.clusters.services import TierHistory
from apps.quota_requests.domain.quantities import MOST, Quantity, quantity
from apps.quota_requests.domain.targets import Target, TargetRefused, target_of
from apps.quota_requests.models import ChangeRequest
from apps.quotas.selectors import QuotaFilters, QuotaRow, quota_rows

_MOST = 100_000


@dataclass(frozen=True, slots=True)
class KnownQuota:
    """A target in its cluster; `row` is its quota as observed, None where there is none."""

    cluster: Cluster
    target: Target
    row: QuotaRow | None

    @property
    def amount(self) -> Quantity | None:
        return None if self.row is None else amount_of(self.row.hard)


def amount_of(units: float) -> Quantity:
    """Return an observed amount as an exact one; Kubernetes keeps billionths.

    As "no limit" people write the most that Kubernetes holds, which a float shows as more.
    """
    return Quantity(min(round(units * 10**9), MOST * 10**9))


def target_of_request(request: ChangeRequest, named: Collection[str] | None = None) -> Target:
    """Return what a stored request is about; it was checked when it was made.

    `named` is what `named_resources` returns: to be given where there are many requests.
    """
    return target_of(
        source=request.source,
        namespace=request.namespace,
        name=request.name,
        key=request.key,
        named=named_resources() if named is None else named,
    )


def reviewed(request: ChangeRequest) -> Quantity:
    return quantity(request.before)


def wanted(request: ChangeRequest) -> Quantity:
    return quantity(request.after)


def known_quota(
    cluster: str,
    source: str,
    namespace: str,
    name: str,
    key: str,
    *,
    at: datetime,
    visibility: Visibility,
) -> KnownQuota:
    """Return what the reader may see of a quota key. Raises TargetRefused.

    Twelve queries, whatever there is.
    """
    of = Cluster.objects.filter(name=cluster, active=True).first()
    if of is None:
        raise TargetRefused(f"There is no cluster {cluster}.")
    target = target_of(
        source=source, namespace=namespace, name=name, key=key, named=named_resources()
    )
    return KnownQuota(of, target, observed(cluster, target, at=at, visibility=visibility))


def observed(
    cluster: str, target: Target, *, at: datetime, visibility: Visibility
) -> QuotaRow | None:
    """Return the row of a quota key, None where there is none or the reader may not see it."""
    filters = QuotaFilters(
        cluster=(cluster,),
        namespace=(target.namespace,) if target.namespace else (),
        source=(target.source.value,),
    )
    page = quota_rows(at, filters=filters, visibility=visibility, page_size=_MOST)
    return next(
        (row for row in page.rows if (row.name, row.key) == (target.name, target.key)), None
    )


def team_asking(known: KnownQuota, team: str | None, *, at: datetime) -> Team:
    """Return whose request it is: who claims the namespace, or, of a queue, one who uses it.

    `team` has to be named where several use a queue. Raises TargetRefused.
    """
    row = known.row
    if row is None:
        raise TargetRefused(
            f"The portal does not see {known.target} in {known.cluster.name}.",
            fix="Check its name; a quota made just now is there within half a minute.",
        )
    name = team or row.team
    if name is None:
        raise TargetRefused("Several teams use this queue.", fix="Name the team that asks.")
    found = Team.objects.filter(name=name, active=True).first()
    if found is None:
        raise TargetRefused(f"There is no team {name}.")
    own = Visibility(everything=False, team_ids=frozenset({found.pk}))
    if observed(known.cluster.name, known.target, at=at, visibility=own) is None:
        raise TargetRefused(f"{name} does not use {known.target}.")
    return found


def named_resources() -> frozenset[str]:
    """Return the resources and device classes of tiers, past ones too. Two queries."""
    history = TierHistory.load()
    return history.resources | history.device_classes
