"""Signing in and out."""

import pytest
from django.test import Client

from tests.factories import Portal, make_user

pytestmark = pytest.mark.django_db


def test_the_right_password_leads_to_the_page_that_was_asked_for(portal: Portal) -> None:
    form = {"username": "ada", "password": "ada", "next": "/capacity/teams/vision/?window=7d"}
    response = Client().post("/sign-in/", form)
    assert (response.status_code, response["Location"]) == (
        302,
        "/capacity/teams/vision/?window=7d",
    )


def test_nobody_is_sent_to_another_host_after_signing_in(portal: Portal) -> None:
    form = {"username": "ada", "password": "ada", "next": "https://elsewhere.example/"}
    assert Client().post("/sign-in/", form)["Location"] == "/"


@pytest.mark.parametrize("target", ["/sign-in/", "/sign-in/?next=/", "/sign-in/%3Fnext=/"])
def test_who_is_signed_in_is_never_sent_back_to_the_sign_in(target: str, portal: Portal) -> None:
    client = Client()
    client.force_login(portal.ada)
    response = client.get("/sign-in/", {"next": target})
    assert response.status_code == 302
    assert response["Location"] in {"/", "/sign-in/%3Fnext=/"}


@pytest.mark.parametrize("name", ["ada", "nobody"])
def test_a_wrong_password_says_what_can_be_done(name: str, portal: Portal) -> None:
    response = Client().post("/sign-in/", {"username": name, "password": "wrong"})
    page = response.content.decode()
    assert response.status_code == 200
    assert "Wrong user name or password" in page
    assert 'role="alert"' in page


def test_an_empty_form_names_the_fields(portal: Portal) -> None:
    assert Client().post("/sign-in/", {}).content.decode().count("This field is required") == 2


def test_signing_out_is_a_post_that_ends_the_session(portal: Portal) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(portal.ada)
    assert client.get("/sign-out/").status_code == 405
    assert client.post("/sign-out/").status_code == 403
    client.get("/")
    token = client.cookies["csrftoken"].value
    response = client.post("/sign-out/", {"csrfmiddlewaretoken": token})
    assert (response.status_code, response["Location"]) == (302, "/sign-in/")
    assert client.get("/").status_code == 302


def test_a_form_without_its_token_says_that_nothing_changed(portal: Portal) -> None:
    client = Client(enforce_csrf_checks=True)
    response = client.post("/sign-in/", {"username": "ada", "password": "ada"})
    assert response.status_code == 403
    assert "Form expired" in response.content.decode()


@pytest.mark.parametrize("name", ["portal", "Portal", "p\u043ertal"])
def test_nobody_signs_in_under_a_name_of_the_portal(name: str, portal: Portal) -> None:
    make_user(name)
    response = Client().post("/sign-in/", {"username": name, "password": name})
    assert response.status_code == 200
    assert "a name of the portal itself" in response.content.decode()
