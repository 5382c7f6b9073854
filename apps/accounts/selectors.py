"""Reads of people, their tokens and teams."""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.db import connection
from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from msgspec import Struct

from apps.accounts.domain.identity import Role, TokenScope, is_reserved, unpacked_scopes
from apps.accounts.domain.rows import row_from
from apps.accounts.models import ApiToken, Membership, SavedView, Team, User
from apps.accounts.permissions import can_administer, places_of
from gpuportal.queries import BatchQuery, read_once

# Written out: every request to the API begins with it, and the mapper takes as long to write it
# as the database to answer.
_BEARER = """
    SELECT person.id, person.username, person.role, person.is_superuser, person.is_active,
        token.id AS token_id, token.scopes AS token_scopes,
        CASE WHEN token.revoked_at IS NOT NULL THEN 'revoked'
             WHEN token.expires_at <= %s THEN 'expired'
             WHEN EXISTS (
                 SELECT 1 FROM socialaccount_socialaccount known
                 WHERE known.user_id = person.id AND known.provider = %s AND known.last_login < %s
             ) THEN 'unobserved' ELSE '' END AS token_refused,
        CASE WHEN token.last_used_at >= %s THEN 0 ELSE 1 END AS token_use_unnoted
    FROM accounts_apitoken token JOIN accounts_user person ON person.id = token.user_id
    WHERE token.digest = %s
"""


class Bearer(Struct, frozen=True):
    """Who sends an API token, and what the token may be used for.

    `refused` is `revoked`, `expired`, `unobserved` or `reserved` for a token that is not good, else
    empty; the caller checks whether the account is active. `reserved`: the person has a name of the
    portal itself, and would be taken for it in the audit. `unobserved`: the sign-in provider has
    not confirmed the person for so long that they may have left; the portal is not told of that.
    `scopes` never exceed what the person may do now, whatever the token was made for. `unnoted`:
    its use in this minute is not stored yet.
    """

    person: User
    token_id: int
    scopes: frozenset[TokenScope]
    refused: str
    unnoted: bool


@read_once
def leads_by_team() -> dict[int, tuple[str, ...]]:
    """Return team id → user names of its leads, in order; teams without one are left out.

    A name is there as the catalog or groups give it, whether or not that person ever signed in.
    One query.
    """
    leads: dict[int, dict[str, None]] = defaultdict(dict)  # a set in order: two may name one
    for team, username in LEADS.rows():
        leads[team][username] = None
    return {team: tuple(names) for team, names in leads.items()}


def _leads() -> QuerySet[Membership, tuple[int, str]]:
    leads = Membership.objects.filter(lead=True).order_by("username", "pk")
    return leads.values_list("team_id", "username")


LEADS = BatchQuery(_leads)


@read_once
def all_teams() -> Sequence[Team]:
    """Return every team there ever was, by name. One query."""
    alias = Team.objects.db
    # By hand, since rows of a batch are plain values and no objects of the mapper.
    return [Team.from_db(alias, _TEAM_COLUMNS, row) for row in TEAMS.rows()]


_TEAM_COLUMNS = [field.attname for field in Team._meta.concrete_fields]


def _teams() -> QuerySet[Team, Any]:
    return Team.objects.order_by("name").values_list(*_TEAM_COLUMNS)


TEAMS = BatchQuery(_teams)


def team_names() -> Mapping[int, str]:
    """Return id → name of every team there ever was. One query."""
    return dict(sorted((team.pk, team.name) for team in all_teams()))


def bearer_of(key: str, *, now: datetime) -> Bearer | None:
    """Return who sends this API token; None for a text that never was one.

    What else the person's row holds is read when it is asked for. One query.
    """
    minute = now.replace(second=0, microsecond=0)
    issuer, confirmed_since = _confirmed_since(now)
    # Raw SQL adapts no times, and SQLite compares them as texts of one form.
    adapt = connection.ops.adapt_datetimefield_value
    digest = hashlib.sha256(key.encode()).hexdigest()
    given = [adapt(now), issuer, adapt(confirmed_since), adapt(minute), digest]
    row: Any = next(iter(User.objects.raw(_BEARER, given)), None)
    if row is None:
        return None
    scopes = unpacked_scopes(row.token_scopes)
    return Bearer(
        person=row,
        token_id=row.token_id,
        # The role may have changed since the token was made.
        scopes=scopes if can_administer(row) else scopes - {TokenScope.DECIDE},
        refused=row.token_refused or ("reserved" if is_reserved(row.username) else ""),
        unnoted=bool(row.token_use_unnoted),
    )


def _confirmed_since(now: datetime) -> tuple[str, datetime]:
    """Return the sign-in provider, and since when it must have confirmed people for tokens."""
    known = settings.SINGLE_SIGN_ON
    if known is None:
        return "", now
    return known.issuer, now - timedelta(days=known.token_days)


class TokenRow(Struct, frozen=True):
    """A token as its person sees it; `state` is `live`, `expired` or `revoked`."""

    pk: int
    name: str
    ending: str
    scopes: tuple[str, ...]
    created_at: datetime
    expires_at: datetime
    last_used_at: datetime | None
    state: str


def tokens_of(user: User, *, now: datetime) -> list[TokenRow]:
    """Return the tokens of `user`, live ones first, then the latest. One query."""
    rows = [
        row_from(
            TokenRow,
            token,
            scopes=tuple(token.scopes.split(",")),
            state=_state(token, now),
        )
        for token in ApiToken.objects.filter(user=user).order_by("-created_at", "-pk")
    ]
    return sorted(rows, key=lambda row: row.state != "live")


def _state(token: ApiToken, now: datetime) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "live" if token.expires_at > now else "expired"


class MembershipRow(Struct, frozen=True):
    """A place on a team and who gave it: `catalog`, `groups`, or `portal` for an administrator."""

    team: str
    lead: bool
    source: str

    @property
    def can_be_taken(self) -> bool:
        """Whether an administrator can take it: neither the catalog nor a group gives it now."""
        return self.source == "portal" or (self.source == "catalog" and not self.lead)


class PersonRow(Struct, frozen=True):
    """An account as administrators see it.

    `role_from` is `groups` of the sign-in provider, `createsuperuser`, or `administrator`.
    `signs_in` is `password`, `provider`, both joined by `, `, or empty for an account that expects
    its first sign-in through the provider. `tokens` counts live ones.
    """

    pk: int
    username: str
    email: str
    role: str
    role_from: str
    places: tuple[MembershipRow, ...]
    signs_in: str
    last_sign_in_at: datetime | None
    tokens: int
    active: bool

    @property
    def subject(self) -> str:
        """How the audit names the account."""
        return f"account/{self.username}"


def people(*, now: datetime) -> list[PersonRow]:
    """Return every account by user name; for administrators alone. Two queries."""
    users = _with_signs(now).order_by("username")
    places = _places(Membership.objects.all())
    return [_person_row(user, places.get(user.username, ())) for user in users]


def person(pk: int, *, now: datetime) -> PersonRow | None:
    """Return one account, None for none; for administrators alone. Two queries."""
    user = _with_signs(now).filter(pk=pk).first()
    if user is None:
        return None
    places = _places(Membership.objects.filter(username=user.username))
    return _person_row(user, places.get(user.username, ()))


class OwnTeams(Struct, frozen=True):
    """The active teams that a person is on, by name; `leads`: they lead at least one."""

    names: tuple[str, ...]
    leads: bool


def own_teams(user: User) -> OwnTeams:
    """Return the teams of `user`, whatever else their role lets them see. One query."""
    places = [one for one in places_of(user.username) if one.active]
    names = tuple(dict.fromkeys(one.team for one in places))
    return OwnTeams(names, any(one.lead for one in places))


def open_teams() -> list[str]:
    """Return the names of the teams that people can be put on, in order. One query."""
    rows = Team.objects.filter(active=True, builtin=False).order_by("name")
    return list(rows.values_list("name", flat=True))


def _with_signs(now: datetime) -> QuerySet[Any]:
    live = Q(tokens__revoked_at=None, tokens__expires_at__gt=now)
    return User.objects.annotate(
        live_tokens=Count("tokens", filter=live),
        by_provider=Exists(SocialAccount.objects.filter(user=OuterRef("pk"))),
    )


def _places(of: QuerySet[Membership]) -> dict[str, tuple[MembershipRow, ...]]:
    found: dict[str, list[MembershipRow]] = defaultdict(list)
    rows = of.order_by("team__name", "source", "pk")
    for username, team, lead, source in rows.values_list(
        "username", "team__name", "lead", "source"
    ):
        found[username].append(MembershipRow(team, lead, source))
    return {username: tuple(given) for username, given in found.items()}


def _person_row(user: Any, places: tuple[MembershipRow, ...]) -> PersonRow:
    ways = {"password": user.has_usable_password(), "provider": user.by_provider}
    given_by = "groups" if user.role_from_groups else "administrator"
    return PersonRow(
        pk=user.pk,
        username=user.username,
        email=user.email,
        # Whom `createsuperuser` made administers everything, whatever the column says.
        role=Role.ADMIN.value if user.is_superuser else user.role,
        role_from="createsuperuser" if user.is_superuser else given_by,
        places=places,
        signs_in=", ".join(way for way, used in ways.items() if used),
        last_sign_in_at=user.last_login,
        tokens=user.live_tokens,
        active=user.is_active,
    )


class SavedViewRow(Struct, frozen=True):
    """A view that a person saved; `address` is a path of this portal with its query."""

    pk: int
    name: str
    address: str


def saved_views(user: User) -> list[SavedViewRow]:
    """Return the views that `user` saved, by name; never those of other users. One query."""
    return [SavedViewRow(*row) for row in SAVED_VIEWS.rows(user.pk)]


def _views_of(user_id: int) -> QuerySet[SavedView, tuple[int, str, str]]:
    rows = SavedView.objects.filter(user_id=user_id).order_by("name", "pk")
    return rows.values_list("pk", "name", "address")


SAVED_VIEWS = BatchQuery(_views_of, is_pure=True)
