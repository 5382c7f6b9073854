"""Who may do what: each rule × each role, once."""

from collections.abc import Callable

import pytest
from django.core.exceptions import PermissionDenied
from msgspec import Struct
from pytest_django import Settings

from apps.accounts import permissions
from apps.accounts.domain.identity import Role
from apps.accounts.models import Membership, Team, User
from apps.accounts.permissions import NotAllowed, visibility_of
from tests.factories import make_team, make_user

pytestmark = pytest.mark.django_db


class People(Struct, frozen=True):
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
Call = Callable[[User, int], None]
RULES: dict[str, tuple[Call, set[str]]] = {
    "administer": (lambda user, _: permissions.check_administer(user), ADMINS),
    "manage": (lambda user, _: permissions.check_manage(user, 1_000_000), ADMINS),
    "request": (permissions.check_request, {"ada", *ADMINS}),
}


def test_every_rule_is_in_this_table() -> None:
    named = {name.removeprefix("check_") for name in vars(permissions) if name.startswith("check_")}
    assert named == set(RULES)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_lets_in_whom_it_names_and_tells_all_others_why(name: str, people: People) -> None:
    check, allowed = RULES[name]
    for who in allowed:
        check(people.by_name[who], people.vision.pk)
    for who in people.by_name.keys() - allowed:
        with pytest.raises(NotAllowed, match=r"^[A-Z].+\.$"):
            check(people.by_name[who], people.vision.pk)


def test_a_team_is_seen_by_its_people_finance_and_administrators(people: People) -> None:
    vision = people.vision.pk
    seeing = {name for name, user in people.by_name.items() if visibility_of(user).sees(vision)}
    assert seeing == {"ada", "ben", "finn", *ADMINS}


def may_request(user: User, team: Team) -> bool:
    try:
        permissions.check_request(user, team.pk)
    except NotAllowed:
        return False
    return True


def test_nobody_switches_their_own_account(people: People) -> None:
    cleo = people.by_name["cleo"]
    with pytest.raises(NotAllowed, match="your own account"):
        permissions.check_manage(cleo, cleo.pk)


def test_who_is_switched_off_may_nothing(people: People) -> None:
    User.objects.update(is_active=False)
    for user in User.objects.order_by("pk"):
        assert not permissions.can_administer(user)
        assert not may_request(user, people.vision)


def test_a_lead_by_groups_asks_as_one_by_the_catalog(people: People) -> None:
    Membership.objects.create(team=people.vision, username="dan", lead=True, source="groups")
    assert may_request(people.by_name["dan"], people.vision)


def test_nobody_requests_a_team_that_the_catalog_no_longer_has(people: People) -> None:
    Team.objects.update(active=False)
    assert not may_request(people.by_name["ada"], people.vision)


def test_leading_one_team_is_no_right_in_another(people: People) -> None:
    speech = make_team("speech")
    ada = people.by_name["ada"]
    assert not may_request(ada, speech)
    assert not visibility_of(ada).sees(speech.pk)


def test_in_an_open_portal_all_see_and_no_more_may_decide(
    people: People, settings: Settings
) -> None:
    settings.VISIBILITY = "open"
    dan = people.by_name["dan"]
    assert visibility_of(dan).sees(people.vision.pk)
    assert not may_request(dan, people.vision)
    assert not permissions.can_administer(dan)


def test_a_refusal_is_one_that_django_answers_with_403() -> None:
    assert issubclass(NotAllowed, PermissionDenied)
