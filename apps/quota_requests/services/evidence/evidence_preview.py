"""The evidence of a quota key before anything is asked: what a form shows beside its fields."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from apps.quota_requests.domain.targets import TargetRefused
from apps.quota_requests.models import ChangeRequest
from apps.quota_requests.permissions import Actor, check_create
from apps.quota_requests.services.evidence.known_quotas import known_quota, team_asking
from apps.quota_requests.services.evidence.snapshot import evidence_of


def evidence_ahead(
    *,
    cluster: str,
    source: str,
    namespace: str,
    name: str,
    key: str,
    team: str | None,
    by: Actor,
    now: datetime,
) -> Mapping[str, Any]:
    """Return the evidence of a change of this key, whatever its amount. The cluster is not asked.

    `team` is needed where several teams use a queue. Raises TargetRefused, and NotAllowed for who
    may not ask for the team.
    """
    known = known_quota(*(cluster, source, namespace, name, key), at=now, visibility=by.visibility)
    asking = team_asking(known, team, at=now)
    check_create(by, asking.pk)
    if known.row is None or known.amount is None:
        raise TargetRefused(f"The portal does not see {known.target} in {cluster}.")
    amount = known.amount.text
    about = ChangeRequest(
        cluster=known.cluster,
        team=asking,
        source=source,
        namespace=namespace if known.target.namespace else "",
        name=name,
        key=key,
        before=amount,
        after=amount,
        tiers=list(known.row.tiers),
    )
    return evidence_of(about, now=now).frozen
