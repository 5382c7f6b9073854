"""Who may do what: each rule × each role, once."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from django.core.exceptions import PermissionDenied
from pytest_django import Settings

from apps.accounts import permissions
from apps.accounts.domain.roles import Role
from apps.accounts.models import Membership, Team, User
from apps.accounts.permissions import NotAllowed
from tests.factories import make_team, make_user

pytestmark = pytest.mark.django_db
AUTHOR = 1_000_000


@dataclass(frozen=True)
class People:
    """Ada leads vision, Ben is on it, Cleo administers, Dan is on no team, Finn does finance."""

    vision: Team
    by_name: dict[str, User]


@pytest.fixture
def people() -> People:
    vision = make_team("vision")
    users = [
        make_user("ada", leads=[vision]),
        make_user("ben", teams=[vision]),
        make_user("cleo", Role.ADMIN),
        make_user("dan"),
        make_user("finn", Role.FINANCE),
    ]
    root = User.objects.create_superuser("root", password="root")
    return People(vision, {user.username: user for user in (*users, root)})


ADMINS = {"cleo", "root"}
TEAM = {"ada", "ben", "finn", *ADMINS}
Call = Callable[[Callable[..., object], User, int], object]
RULES: dict[str, tuple[Call, set[str]]] = {
    "administer": (lambda rule, user, _: rule(user), ADMINS),
    "manage": (lambda rule, user, _: rule(user, AUTHOR), ADMINS),
    "see_team": (lambda rule, user, team: rule(user, team), TEAM),
    "see_money": (lambda rule, user, team: rule(user, team), TEAM),
    "close_periods": (lambda rule, user, _: rule(user), {"finn", *ADMINS}),
    "request": (lambda rule, user, team: rule(user, team), {"ada", *ADMINS}),
    "review": (lambda rule, user, _: rule(user), ADMINS),
    "approve": (lambda rule, user, _: rule(user, author_id=AUTHOR), ADMINS),
}


def test_every_rule_is_in_this_table() -> None:
    for prefix in ("check_", "can_"):
        named = {name.removeprefix(prefix) for name in vars(permissions) if name.startswith(prefix)}
        assert named == set(RULES)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_lets_in_whom_it_names_and_tells_all_others_why(name: str, people: People) -> None:
    call, allowed = RULES[name]
    can, check = getattr(permissions, f"can_{name}"), getattr(permissions, f"check_{name}")
    passed = {n for n, user in people.by_name.items() if call(can, user, people.vision.pk)}
    assert passed == allowed
    for who in people.by_name.keys() - allowed:
        with pytest.raises(NotAllowed, match=r"^[A-Z].+\.$"):
            call(check, people.by_name[who], people.vision.pk)


def test_nobody_approves_what_they_wrote(people: People) -> None:
    cleo = people.by_name["cleo"]
    with pytest.raises(NotAllowed, match="another administrator"):
        permissions.check_approve(cleo, author_id=cleo.pk)


def test_nobody_switches_their_own_account(people: People) -> None:
    cleo = people.by_name["cleo"]
    assert not permissions.can_manage(cleo, cleo.pk)


def test_who_is_switched_off_may_nothing(people: People) -> None:
    User.objects.update(is_active=False)
    for user in User.objects.order_by("pk"):
        assert not permissions.can_administer(user)
        assert not permissions.can_close_periods(user)
        assert not permissions.can_request(user, people.vision.pk)


def test_a_lead_by_groups_asks_as_one_by_the_catalog(people: People) -> None:
    Membership.objects.create(team=people.vision, username="dan", lead=True, source="groups")
    assert permissions.can_request(people.by_name["dan"], people.vision.pk)


def test_nobody_asks_for_a_team_that_the_catalog_no_longer_has(people: People) -> None:
    Team.objects.update(active=False)
    assert not permissions.can_request(people.by_name["ada"], people.vision.pk)


def test_leading_one_team_is_no_right_in_another(people: People) -> None:
    speech = make_team("speech")
    ada = people.by_name["ada"]
    assert not permissions.can_request(ada, speech.pk)
    assert not permissions.can_see_money(ada, speech.pk)


def test_in_an_open_portal_all_see_and_no_more_may_decide(
    people: People, settings: Settings
) -> None:
    settings.VISIBILITY = "open"
    dan = people.by_name["dan"]
    assert permissions.can_see_team(dan, people.vision.pk)
    assert permissions.can_see_money(dan, people.vision.pk)
    assert not permissions.can_request(dan, people.vision.pk)
    assert not permissions.can_administer(dan)


def test_a_refusal_is_one_that_django_answers_with_403() -> None:
    assert issubclass(NotAllowed, PermissionDenied)
