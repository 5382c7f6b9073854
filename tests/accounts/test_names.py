"""Names that nobody may have."""

import pytest
from django.core.exceptions import ValidationError

from apps.accounts.domain.names import PORTAL, is_reserved
from apps.accounts.domain.roles import Role
from apps.accounts.services import PersonChanges, TokenRefused, check_new_person, issue_token
from apps.changes.domain.states import Who
from tests.changes.portal import NOW
from tests.factories import make_user


def test_the_reserved_name_is_what_the_portal_acts_under() -> None:
    assert Who.SYSTEM == PORTAL


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
    ("name", "says"), [("Portal", "calls itself"), ("ADA", "differs from 'ADA' in upper and lower")]
)
def test_no_account_is_made_that_would_be_taken_for_another(name: str, says: str) -> None:
    make_user("ada")
    with pytest.raises(ValidationError, match=says):
        check_new_person(name, PersonChanges(role=Role.VIEWER))


@pytest.mark.django_db
def test_no_token_is_made_for_a_name_of_the_portal() -> None:
    with pytest.raises(TokenRefused, match="name of the portal"):
        issue_token(make_user("portal"), name="x", now=NOW)
