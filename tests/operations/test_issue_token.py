"""`issue_token`: a new token, alone on the last line."""

from datetime import timedelta
from io import StringIO

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client
from django.utils import timezone

from apps.accounts.models import ApiToken

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _ada() -> None:
    get_user_model().objects.create_user("ada", password="anything at all")


def issued(*options: str) -> str:
    output = StringIO()
    call_command("issue_token", "ada", *options, stdout=output)
    return output.getvalue().splitlines()[-1]


def status(key: str) -> int:
    headers = {"Authorization": f"Token {key}"}
    return Client(headers=headers).get("/api/v1/tiers").status_code


def test_the_last_line_is_a_token_that_signs_in() -> None:
    assert status(issued()) == 200


def test_asking_again_gives_another_and_both_work() -> None:
    first, second = issued(), issued()
    assert first != second
    assert (status(first), status(second)) == (200, 200)


def test_a_replaced_token_no_longer_works_and_one_of_another_name_does() -> None:
    other, old = issued("--name", "export"), issued()
    new = issued("--replace")
    assert (status(other), status(old), status(new)) == (200, 401, 200)


def test_name_scopes_and_days_are_as_asked() -> None:
    before = timezone.now()
    issued("--name", "nightly export", "--scope", "request", "--days", "7")
    token = ApiToken.objects.get()
    assert (token.name, token.scopes) == ("nightly export", "read,request")
    assert timedelta(days=7) <= token.expires_at - before < timedelta(days=7, minutes=1)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        pytest.param(["--days", "0"], "from 1 to 366 days", id="no day"),
        pytest.param(["--days", "367"], "from 1 to 366 days", id="more than a year"),
        pytest.param(["--scope", "decide"], "Only administrators", id="more than the role"),
        pytest.param(["--scope", "everything"], "invalid choice", id="no scope"),
        pytest.param(["--name", " "], "needs a name", id="no name"),
    ],
)
def test_what_cannot_be_is_refused(options: list[str], says: str) -> None:
    with pytest.raises(CommandError, match=says):
        issued(*options)
    assert not ApiToken.objects.exists()


def test_an_unknown_person_is_named() -> None:
    with pytest.raises(CommandError, match="no account has the name 'zoe'"):
        call_command("issue_token", "zoe")


def test_a_deactivated_person_gets_none() -> None:
    get_user_model().objects.filter(username="ada").update(is_active=False)
    with pytest.raises(CommandError, match="deactivated"):
        call_command("issue_token", "ada")
    assert not ApiToken.objects.exists()
