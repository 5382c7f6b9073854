"""The quota key that a request is about, as the portal knows it."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from apps.accounts.models import Team
from apps.accounts.permissions import Visibility
from apps.clusters.models import Cluster
from apps.clusters.services import TierHistory
from apps.quota_requests.domain.quantities import MOST, Quantity, quantity
from apps.quota_requests.domain.targets import Target, TargetRefused, target_of
from apps.quota_requests.models import ChangeRequest
from apps.quotas.domain.keys import QuotaRef
from apps.quotas.selectors import QuotaRow, quota_row


@dataclass(frozen=True, slots=True)
class KnownQuota:
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
