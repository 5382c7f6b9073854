"""Guessing passwords is slowed down; who knows theirs is not."""

from datetime import timedelta
from typing import cast

import pytest
from axes.models import AccessAttempt
from django.conf import settings
from django.core.management import call_command
from django.db.models import F
from django.http import HttpResponse
from django.test import Client, RequestFactory

from apps.web.accounts.sign_in import client_place
from tests.factories import Portal, make_user

pytestmark = pytest.mark.django_db


def attempt(password: str, name: str = "ada", address: str = "192.0.2.1") -> HttpResponse:
    """Try to sign in from an address."""
    form = {"username": name, "password": password, "next": "/"}
    return cast("HttpResponse", Client(REMOTE_ADDR=address).post("/sign-in/", form))


def fail(times: int, name: str = "ada", address: str = "192.0.2.1") -> HttpResponse:
    for _ in range(times - 1):
        assert attempt("wrong", name, address).status_code == 200
    return attempt("wrong", name, address)


def test_the_fifth_wrong_password_is_told_when_to_come_back(portal: Portal) -> None:
    response = fail(settings.AXES_FAILURE_LIMIT)
    assert response.status_code == 429
    assert response["Retry-After"] == "900"
    assert "no-store" in response["Cache-Control"]
    page = response.content.decode()
    assert "Try again in 15 minutes, from " in page
    assert "(Europe/Berlin)." in page
    assert 'role="alert"' in page


def test_who_comes_again_is_told_the_time_that_is_left(portal: Portal) -> None:
    fail(settings.AXES_FAILURE_LIMIT)
    AccessAttempt.objects.update(attempt_time=F("attempt_time") - timedelta(minutes=13, seconds=30))
    response = attempt("ada")
    assert response.status_code == 429
    assert 80 <= int(response["Retry-After"]) <= 90
    assert "Try again in 2 minutes" in response.content.decode()


def guess(times: int, *, names: int = 1, places: int = 1) -> HttpResponse:
    """Give wrong passwords, for one name after the other, from one place after the other."""
    for n in range(times):
        name = f"person-{n % names}" if names > 1 else "ada"
        response = attempt("wrong", name, f"198.51.100.{n % places + 1}")
    return response


def test_one_name_is_kept_from_being_guessed_from_many_places(portal: Portal) -> None:
    limit = settings.SIGN_IN_FAILURES_PER_NAME
    assert guess(limit - 1, places=limit).status_code == 200
    assert attempt("ada", address="192.0.2.9").status_code == 302
    assert guess(limit, places=limit).status_code == 429
    assert attempt("ada", address="192.0.2.9").status_code == 429
    assert attempt("ben", "ben", "192.0.2.9").status_code == 302


def come_again(browser: Client, name: str, password: str) -> int:
    form = {"username": name, "password": password}
    return int(browser.post("/sign-in/", form).status_code)


def test_nobody_keeps_a_person_out_of_the_browser_that_they_use(portal: Portal) -> None:
    browser, ben = Client(), Client()
    assert (come_again(browser, "ada", "ada"), come_again(ben, "ben", "ben")) == (302, 302)
    for client in (browser, ben):
        client.post("/sign-out/")
    limit = settings.SIGN_IN_FAILURES_PER_NAME
    assert guess(limit, places=limit).status_code == 429
    assert come_again(Client(), "ada", "ada") == 429
    assert come_again(ben, "ada", "ada") == 429, "that browser is known for another name"
    assert come_again(browser, "ada", "ada") == 302


def test_a_known_browser_guesses_no_more_than_any_other_from_its_place(portal: Portal) -> None:
    browser = Client()
    assert come_again(browser, "ada", "ada") == 302
    browser.post("/sign-out/")
    tries = [come_again(browser, "ada", f"try-{n}") for n in range(settings.AXES_FAILURE_LIMIT)]
    assert tries == [200, 200, 200, 200, 429]


def test_a_browser_is_known_by_what_the_portal_signed_alone(portal: Portal) -> None:
    browser = Client()
    assert come_again(browser, "ada", "ada") == 302
    cookie = browser.cookies["known_browser"]
    assert (bool(cookie["httponly"]), cookie["samesite"]) == (True, "Lax")
    assert "ada" not in cookie.value
    forged = Client()
    forged.cookies["known_browser"] = f"{cookie.value[:-2]}xx"
    limit = settings.SIGN_IN_FAILURES_PER_NAME
    guess(limit, places=limit)
    assert come_again(forged, "ada", "ada") == 429


def test_a_name_of_any_alphabet_makes_a_browser_known(db: None) -> None:
    make_user("\u0438\u0432\u0430\u043d")
    browser = Client()
    assert come_again(browser, "\u0438\u0432\u0430\u043d", "\u0438\u0432\u0430\u043d") == 302
    browser.cookies["known_browser"].OutputString().encode("ascii")


def test_one_place_is_kept_from_trying_many_names(portal: Portal) -> None:
    limit = settings.SIGN_IN_FAILURES_PER_PLACE
    assert guess(limit - 1, names=limit).status_code == 200
    assert attempt("ben", "ben", "198.51.100.1").status_code == 302
    assert guess(1, names=limit).status_code == 429, "a right password forgot nothing of others"
    assert attempt("ben", "ben", "198.51.100.1").status_code == 429
    assert attempt("ben", "ben", "192.0.2.9").status_code == 302


def test_a_network_of_64_bits_is_one_place(portal: Portal) -> None:
    for n in range(settings.AXES_FAILURE_LIMIT):
        response = attempt("wrong", address=f"2001:db8::{n + 1:x}")
    assert response.status_code == 429
    assert attempt("ada", address="2001:db8::ffff:1").status_code == 429
    assert attempt("ada", address="2001:db8:0:1::1").status_code == 302


@pytest.mark.parametrize(
    ("address", "place"),
    [
        pytest.param("192.0.2.7", "192.0.2.7", id="version 4"),
        pytest.param("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::", id="version 6: its network"),
        pytest.param("::ffff:192.0.2.7", "192.0.2.7", id="version 4 written as 6"),
        pytest.param("", None, id="none"),
    ],
)
def test_failures_are_counted_by_place(address: str, place: str | None) -> None:
    assert client_place(RequestFactory().get("/", REMOTE_ADDR=address)) == place


def test_who_comes_over_a_socket_is_not_one_place_with_all_others(portal: Portal) -> None:
    for n in range(settings.SIGN_IN_FAILURES_PER_PLACE):
        attempt("wrong", f"person-{n}", "")
    assert attempt("ada", address="").status_code == 302


def test_even_the_right_password_waits_then(portal: Portal) -> None:
    fail(settings.AXES_FAILURE_LIMIT)
    assert attempt("ada").status_code == 429


@pytest.mark.parametrize(
    ("name", "address"),
    [
        pytest.param("ben", "192.0.2.1", id="another person at that address"),
        pytest.param("ada", "192.0.2.2", id="that person elsewhere"),
    ],
)
def test_others_are_not_kept_out(name: str, address: str, portal: Portal) -> None:
    fail(settings.AXES_FAILURE_LIMIT)
    assert attempt(name, name, address).status_code == 302


def test_a_quarter_of_an_hour_later_the_right_password_is_enough(portal: Portal) -> None:
    fail(settings.AXES_FAILURE_LIMIT)
    AccessAttempt.objects.update(attempt_time=F("attempt_time") - timedelta(minutes=14))
    assert attempt("ada").status_code == 429, "trying made the wait neither longer nor shorter"
    AccessAttempt.objects.update(attempt_time=F("attempt_time") - timedelta(minutes=1))
    assert attempt("ada").status_code == 302


def test_signing_in_forgets_the_wrong_passwords_before(portal: Portal) -> None:
    fail(settings.AXES_FAILURE_LIMIT - 1)
    assert attempt("ada").status_code == 302
    assert fail(settings.AXES_FAILURE_LIMIT - 1).status_code == 200


def test_an_administrator_can_let_somebody_in_at_once(portal: Portal) -> None:
    fail(settings.AXES_FAILURE_LIMIT)
    call_command("axes_reset_username", "ada", verbosity=0)
    assert attempt("ada").status_code == 302


def test_no_password_and_no_form_token_is_written_down(portal: Portal) -> None:
    attempt("a password of mine")
    written = "".join(str(value) for row in AccessAttempt.objects.values_list() for value in row)
    assert "a password of mine" not in written


def test_a_signed_in_person_goes_on_while_somebody_guesses(portal: Portal) -> None:
    client = Client(REMOTE_ADDR="192.0.2.1")
    client.force_login(portal.ada)
    fail(settings.AXES_FAILURE_LIMIT)
    assert client.get("/capacity/teams/").status_code == 200
