"""The form of a request before it is submitted: the quota, and the preview of the change."""

from datetime import datetime

from msgspec import Struct

from apps.accounts.models import Team
from apps.accounts.permissions import NotAllowed, teams_led_by
from apps.clusters.gateways import ClusterClients
from apps.quota_requests.domain.approval_policy import PolicyDecision
from apps.quota_requests.domain.snapshots import Evidence, ImpactPreview
from apps.quota_requests.domain.targets import TargetRefused
from apps.quota_requests.models import ChangeRequest
from apps.quota_requests.permissions import Actor, check_create, is_written_to
from apps.quota_requests.selectors import open_request_of
from apps.quota_requests.selectors.requests import shown_preview
from apps.quota_requests.services.approval_policy import decide_by_policy
from apps.quota_requests.services.evidence.impact import impact_of
from apps.quota_requests.services.evidence.known_quotas import amount_of, known_quota, team_asking
from apps.quota_requests.services.evidence.snapshot import known_of_team
from apps.quota_requests.services.requests import RequestInput, written
from apps.quota_requests.services.transitions import found
from apps.quotas.domain.keys import QuotaRef
from apps.quotas.selectors import QuotaRow


class QuotaToAsk(Struct, frozen=True):
    """A quota key as the form begins with it; `amount`, `used` and `blocked` are in `unit`.

    `tiers` are all that the key can reach. `teams` are those that the reader may ask for, one
    where it is clear which. `open_request` is the request that stands in the way, None for none.
    `can_write`: the portal may carry the change out by itself; else people commit it.
    """

    ref: QuotaRef
    unit: str
    amount: str
    used: float | None
    blocked: float | None
    tiers: tuple[str, ...]
    teams: tuple[str, ...]
    open_request: int | None
    can_write: bool


class Outlook(Struct, frozen=True):
    """The preview of a request as it is: as it would be frozen if it were submitted now."""

    preview: ImpactPreview
    evidence: Evidence
    ruling: PolicyDecision

    @property
    def tiers(self) -> tuple[str, ...]:
        """All that the key can reach."""
        return self.preview.tiers


def quota_to_ask(ref: QuotaRef, *, by: Actor, now: datetime) -> QuotaToAsk:
    """Return what the form of a new request needs. The cluster is not asked.

    Raises TargetRefused where the reader does not see the quota or it cannot be requested, and
    NotAllowed where the reader may request for no team that uses it.
    """
    known = known_quota(ref, at=now, visibility=by.visibility)
    row = known.seen
    return QuotaToAsk(
        ref=known.ref,
        unit=row.unit,
        amount=amount_of(row.hard).text,
        used=row.used,
        blocked=row.suppressed,
        tiers=row.tiers,
        teams=_teams(row, by),
        open_request=open_request_of(by, known.ref),
        can_write=is_written_to(known.cluster),
    )


def evidence_ahead(ref: QuotaRef, *, team: str | None, by: Actor, now: datetime) -> Evidence:
    """Return the evidence of a change of this key, whatever its amount. The cluster is not asked.

    `team` is needed where several teams use a queue. Raises TargetRefused, and NotAllowed for who
    may not ask for the team.
    """
    known = known_quota(ref, at=now, visibility=by.visibility)
    asking = team_asking(known, team, at=now)
    check_create(by, asking.pk)
    # Never saved: evidence is gathered for a request, and the form has none yet.
    about = ChangeRequest(**known.columns, team=asking, tiers=list(known.seen.tiers))
    return known_of_team(about, now=now).evidence


def _teams(row: QuotaRow, by: Actor) -> tuple[str, ...]:
    """Return for whom the actor may ask; who really uses a shared queue is seen when they do."""
    teams = Team.objects.filter(active=True).order_by("name")
    if row.team is not None:
        own = teams.filter(name=row.team).first()
        if own is None:
            raise TargetRefused(f"There is no team {row.team}.")
        check_create(by, own.pk)
        return (own.name,)
    if by.user is None:
        raise NotAllowed("The portal itself requests nothing.")
    if by.person is not None and by.person.admin:
        # The built-in team of unassigned namespaces has no lead and no spokesperson.
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
    """Return the preview of a stored request for the present state. Raises UnknownRequest."""
    return _of(found(pk, by), by, now, clients)


def _of(
    request: ChangeRequest, by: Actor, now: datetime, clients: ClusterClients | None
) -> Outlook:
    impact = impact_of(request, now=now, clients=clients)
    # In memory alone: evidence is of the tiers that this preview reaches, as at submission.
    request.tiers = list(impact.preview.tiers)
    known = known_of_team(request, now=now)
    return Outlook(
        preview=shown_preview(impact.preview, by),
        evidence=known.evidence,
        ruling=decide_by_policy(request, impact, known, now=now),
    )
