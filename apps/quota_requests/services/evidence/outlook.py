"""What the form of a request shows before it is handed in: the quota, and what would come of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from apps.accounts.models import Team
from apps.accounts.permissions import NotAllowed, teams_led_by
from apps.clusters.gateways import ClusterClients
from apps.quota_requests.domain.targets import TargetRefused
from apps.quota_requests.models import ChangeRequest
from apps.quota_requests.permissions import Actor, check_create, is_written_to
from apps.quota_requests.selectors import open_request_of
from apps.quota_requests.selectors.requests import shown_preview
from apps.quota_requests.services.approval_policy import decide_by_policy
from apps.quota_requests.services.evidence.impact import preview_of
from apps.quota_requests.services.evidence.known_quotas import KnownQuota, known_quota
from apps.quota_requests.services.evidence.snapshot import evidence_of
from apps.quota_requests.services.requests import RequestInput, written
from apps.quota_requests.services.transitions import found


@dataclass(frozen=True, slots=True)
class QuotaToAsk:
    """A quota key as the form begins with it; `amount` and `used` are in `unit` of its resource.

    `tiers` are all that the key can reach. `teams` are those that the reader may ask for, one
    where it is clear which. `open_request` is the request that stands in the way, None for none.
    `can_write`: the portal may carry the change out by itself; else people commit it.
    """

    cluster: str
    source: str
    namespace: str
    name: str
    key: str
    unit: str
    amount: str
    used: float | None
    tiers: tuple[str, ...]
    teams: tuple[str, ...]
    open_request: int | None
    can_write: bool


@dataclass(frozen=True, slots=True)
class Outlook:
    """What would come of a request as it is: as it would be frozen if it were handed in now."""

    preview: Mapping[str, Any]
    evidence: Mapping[str, Any]
    ruling: Mapping[str, Any]
    tiers: tuple[str, ...]


def quota_to_ask(
    *,
    cluster: str,
    source: str,
    namespace: str,
    name: str,
    key: str,
    by: Actor,
    now: datetime,
) -> QuotaToAsk:
    """Return what the form of a new request needs. The cluster is not asked.

    Raises TargetRefused for what the reader does not see or nobody can ask for, and NotAllowed
    for who may ask for no team that uses it.
    """
    known = known_quota(*(cluster, source, namespace, name, key), at=now, visibility=by.visibility)
    row, amount = known.row, known.amount
    if row is None or amount is None:
        raise TargetRefused(
            f"The portal does not see {known.target} in {cluster}.",
            fix="Check its name; a quota made just now is there within half a minute.",
        )
    place = {"cluster": cluster, "source": source, "namespace": known.target.namespace}
    return QuotaToAsk(
        **place,
        name=name,
        key=key,
        unit=row.unit,
        amount=amount.text,
        used=row.used,
        tiers=row.tiers,
        teams=_teams(known, by),
        open_request=open_request_of(by, **place, name=name, key=key),
        can_write=is_written_to(known.cluster),
    )


def _teams(known: KnownQuota, by: Actor) -> tuple[str, ...]:
    """Return for whom the actor may ask; who really uses a shared queue is seen when they do."""
    teams = Team.objects.filter(active=True).order_by("name")
    if known.row is not None and known.row.team is not None:
        own = teams.filter(name=known.row.team).first()
        if own is None:
            raise TargetRefused(f"There is no team {known.row.team}.")
        check_create(by, own.pk)
        return (own.name,)
    if by.user is None:
        raise NotAllowed("The portal asks for nothing by itself.")
    if by.person is not None and by.person.admin:
        return tuple(teams.filter(builtin=False).values_list("name", flat=True))
    names = tuple(teams.filter(pk__in=teams_led_by(by.user)).values_list("name", flat=True))
    if not names:
        raise NotAllowed("Only the leads of a team and administrators ask for its quota.")
    return names


def outlook(
    asked: RequestInput, *, by: Actor, now: datetime, clients: ClusterClients | None = None
) -> Outlook:
    """Return what would come of a request that is only written, not kept.

    The cluster is asked, which takes seconds. Raises what `create` raises.
    """
    return _of(written(asked, by=by, now=now), by, now, clients)


def outlook_of(
    pk: int, *, by: Actor, now: datetime, clients: ClusterClients | None = None
) -> Outlook:
    """Return what would come of a kept request as things are now. Raises UnknownRequest."""
    return _of(found(pk, by), by, now, clients)


def _of(
    request: ChangeRequest, by: Actor, now: datetime, clients: ClusterClients | None
) -> Outlook:
    preview = preview_of(request, now=now, clients=clients)
    request.tiers = list(preview.tiers)
    evidence = evidence_of(request, now=now)
    return Outlook(
        preview=shown_preview(preview.frozen, by),
        evidence=evidence.frozen,
        ruling=decide_by_policy(request, preview, evidence, now=now).frozen,
        tiers=preview.tiers,
    )
