"""Names that nobody may have."""

import pytest
from django.core.exceptions import ValidationError

from apps.accounts.domain.identity import PORTAL, Role, is_reserved, reads_as
from apps.accounts.services import PersonChanges, TokenRefused, check_new_person, issue_token
from apps.quota_requests.domain.states import ActorRole
from tests.factories import make_user
from tests.quota_requests.portal import NOW


def test_the_reserved_name_is_what_the_portal_acts_under() -> None:
    assert ActorRole.SYSTEM == PORTAL


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("portal", id="the very name"),
        pytest.param("Portal", id="another case"),
        pytest.param("PORTAL", id="all in capitals"),
        pytest.param("\u0440ortal", id="a Cyrillic letter"),
        pytest.param("p\u03bfrtal", id="a Greek letter"),
        pytest.param("p0rta1", id="digits"),
        pytest.param("portaI", id="a capital i"),
        pytest.param("\uff50ortal", id="a wide letter"),
        pytest.param("p\u00f3rtal", id="an accent"),
        pytest.param("portal_", id="a stroke behind"),
    ],
)
def test_what_looks_like_the_portal_is_reserved(name: str) -> None:
    assert is_reserved(name)


@pytest.mark.parametrize("name", ["ada", "portal-bot", "portals", "gpuportal", "port", ""])
def test_other_names_are_free(name: str) -> None:
    assert not is_reserved(name)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "says"), [("Portal", "name of the portal itself"), ("ADA", "'ADA' would be taken for")]
)
def test_no_account_is_made_that_would_be_taken_for_another(name: str, says: str) -> None:
    make_user("ada")
    with pytest.raises(ValidationError, match=says):
        check_new_person(name, PersonChanges(role=Role.VIEWER))


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        pytest.param("ada", "ADA", True, id="case"),
        pytest.param("ada", "\uff41da", True, id="wide"),
        pytest.param("ada", "\u0430d\u0430", True, id="cyrillic"),
        pytest.param("bob1", "bobl", False, id="digits are told apart in ascii"),
        pytest.param("rene", "ren\u00e9", False, id="accents make names"),
        pytest.param("\u0438\u0432\u0430\u043d", "ivan", False, id="another alphabet alone"),
    ],
)
def test_names_that_a_reader_takes_for_each_other(one: str, other: str, *, alike: bool) -> None:
    assert (reads_as(one, other), reads_as(other, one)) == (alike, alike)


@pytest.mark.django_db
def test_no_token_is_made_for_a_name_of_the_portal() -> None:
    with pytest.raises(TokenRefused, match="name of the portal"):
        issue_token(make_user("portal"), name="x", now=NOW)
