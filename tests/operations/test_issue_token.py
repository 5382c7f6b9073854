"""`issue_token`: the token alone on the last line."""

from io import StringIO

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import CommandError
from rest_framework.authtoken.models import Token

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _ada() -> None:
    get_user_model().objects.create_user("ada", password="anything at all")


def issued(*options: str) -> str:
    output = StringIO()
    call_command("issue_token", "ada", *options, stdout=output)
    return output.getvalue().splitlines()[-1]


def test_the_last_line_is_a_token_that_signs_in() -> None:
    assert Token.objects.get(key=issued()).user.get_username() == "ada"


def test_asking_again_gives_the_same_token() -> None:
    assert issued() == issued()


def test_a_replaced_token_no_longer_works() -> None:
    old = issued()
    new = issued("--replace")
    assert new != old
    assert list(Token.objects.values_list("key", flat=True)) == [new]


def test_an_unknown_person_is_named() -> None:
    with pytest.raises(CommandError, match="nobody signs in as 'zoe'"):
        call_command("issue_token", "zoe")


def test_a_deactivated_person_gets_none() -> None:
    get_user_model().objects.filter(username="ada").update(is_active=False)
    with pytest.raises(CommandError, match="deactivated"):
        call_command("issue_token", "ada")
    assert not Token.objects.exists()
