"""Who may ask for changes, see requests and comment on them.

What a person may do with a request in its state is the table in `domain.states`.
"""

from django.conf import settings
from django.db.models import Q

from apps.accounts.domain.identity import PORTAL, ActingParty
from apps.accounts.models import Membership, User
from apps.accounts.permissions import (
    NotAllowed,
    Visibility,
    can_administer,
    check_request,
    visibility_of,
)
from apps.clusters.models import Cluster
from apps.quota_requests.domain.states import ActingPerson, RequestState, TransitionFacts
from apps.quota_requests.models import Author, ChangeRequest


class Actor(ActingParty, frozen=True):
    """Who acts and from where; `person` and `user` None are the portal itself."""

    person: ActingPerson | None
    visibility: Visibility
    user: User | None = None


def actor_of(user: User, *, origin: str) -> Actor:
    """Return a signed-in person as the one who acts. At most one query.

    Raises NotAllowed for an account of the portal's own name: the audit could not tell the two
    apart.
    """
    # Without case and spaces: in the audit `Portal ` would read as the portal itself.
    if user.username.strip().casefold() == PORTAL:
        raise NotAllowed(f"The name {PORTAL} is the portal's own: have your account renamed.")
    person = ActingPerson(user.username, admin=can_administer(user))
    return Actor(user.username, origin, person, visibility_of(user), user)


def portal(origin: str = "portal") -> Actor:
    """Return the portal itself as the one who acts."""
    return Actor(PORTAL, origin, None, Visibility(everything=True, operations=True))


def leads_of(team_id: int) -> frozenset[str]:
    """Return the user names of a team's present leads; a closed team has none. One query."""
    led = Membership.objects.filter(team_id=team_id, lead=True, team__active=True)
    rows = led.order_by("username")
    return frozenset(rows.values_list("username", flat=True))


def is_written_to(cluster: Cluster) -> bool:
    """Say whether the portal may change a cluster's quotas: by the site's rules and an account.

    Nothing is changed in a cluster that is no longer in the catalog.
    """
    if settings.REQUESTS_GITOPS_ONLY or not cluster.active:
        return False
    return bool((cluster.kubernetes or {}).get("writer"))


def check_create(actor: Actor, team_id: int) -> None:
    """Let pass who leads the team and platform admins. Raises NotAllowed."""
    if actor.user is None:
        raise NotAllowed("The portal itself requests nothing.")
    check_request(actor.user, team_id)


def seen_by(actor: Actor) -> Q:
    """Return which requests a reader may know of: those of teams that they see in detail.

    A draft has no effect yet: only its authors and its team see it, not even users who see
    everything else.
    """
    if not actor.visibility.everything:
        return Q(team__in=actor.visibility.team_ids)
    if actor.person is None:
        return Q()
    # Subqueries, since a join would repeat a request for each of its authors.
    own = Author.objects.filter(username=actor.name).values("request")
    teams = Membership.objects.filter(username=actor.name).values("team")
    return ~Q(state=RequestState.DRAFT.value) | Q(pk__in=own) | Q(team__in=teams)


def check_comment(actor: Actor, request: ChangeRequest) -> None:
    """Raise NotAllowed unless the actor is an admin, on the team, or wrote the request."""
    if actor.person is not None and actor.person.admin:
        return
    on_team = Membership.objects.filter(team_id=request.team_id, username=actor.name).exists()
    if not on_team and actor.name not in request.authors:
        raise NotAllowed("Only the team and the platform admins can comment on its requests.")


def transition_facts(request: ChangeRequest) -> TransitionFacts:
    """Return where a request stands, with who leads its team now. Two queries at most."""
    return TransitionFacts(
        state=RequestState(request.state),
        authors=frozenset(request.authors),
        leads=leads_of(request.team_id),
        approvals=_that_count(request),
        approvals_needed=request.approvals_needed,
    )


def _that_count(request: ChangeRequest) -> tuple[str, ...]:
    """Return who approved and may still: the first of two approvals is given up with the role.

    Once it is decided the record stays as it is.
    """
    if request.state != RequestState.IN_REVIEW.value or not request.approvals:
        return tuple(request.approvals)
    people = User.objects.filter(username__in=request.approvals).order_by("pk")
    still = {person.username for person in people if can_administer(person)}
    return tuple(name for name in request.approvals if name in still)
