"""Forms of who is signed out by now: nothing typed is lost, and nothing secret is shown again."""

import pytest
from django.test import Client

pytestmark = pytest.mark.django_db
PART = {
    "HX-Request": "true",
    "HX-Current-URL": "http://testserver/costs/recommendations/?state=open",
}


def test_what_was_typed_into_any_form_is_given_back() -> None:
    where = {"Referer": "http://testserver/alerts/?page=2#notice-1"}
    response = Client().post("/alerts/1/answer", {"because": "Kept <b>on</b>."}, headers=where)
    page = response.content.decode()
    assert response.status_code == 403
    assert "Kept &lt;b&gt;on&lt;/b&gt;." in page
    assert "/sign-in/?next=/alerts/%3Fpage%3D2" in page


def test_with_htmx_it_is_said_above_all_and_the_form_is_left_alone() -> None:
    given = {"reason": "They are for the exam.", "back": ""}
    response = Client().post("/costs/recommendations/1/dismiss", given, headers=PART)
    assert response.status_code == 200
    assert "<html" not in response.content.decode()
    assert response["HX-Retarget"] == "#main"
    assert response["HX-Reswap"].startswith("afterbegin")
    assert "/sign-in/?next=/costs/recommendations/%3Fstate%3Dopen" in response.content.decode()


def test_a_button_alone_leads_to_the_sign_in_and_back_to_its_page() -> None:
    response = Client().post("/costs/recommendations/1/accept", headers=PART)
    assert response["HX-Redirect"] == "/sign-in/?next=/costs/recommendations/%3Fstate%3Dopen"
    response = Client().post(
        "/costs/recommendations/1/accept",
        headers={"Referer": "http://testserver/costs/recommendations/"},
    )
    assert response.status_code == 302
    assert response["Location"] == "/sign-in/?next=/costs/recommendations/"


@pytest.mark.parametrize(
    "elsewhere",
    ["http://evil.example/", "//evil.example/", "javascript:alert(1)", "http://testserver@evil/"],
)
def test_no_other_site_is_led_to(elsewhere: str) -> None:
    for headers in ({"Referer": elsewhere}, PART | {"HX-Current-URL": elsewhere}):
        response = Client().post("/costs/recommendations/1/accept", headers=headers)
        told = response.headers.get("Location") or response.headers["HX-Redirect"]
        assert told == "/sign-in/?next=/views/"


def test_passwords_and_addresses_of_channels_are_not_shown_again() -> None:
    for path, typed in (
        ("/password/change", {"old_password": "s3cret-old", "new_password1": "s3cret-new"}),
        ("/alerts/channels/create", {"name": "Ours", "address": "https://hook/s3cret"}),
    ):
        assert "s3cret" not in Client().post(path, typed).content.decode()
