"""Asking for quota: choosing a key, looking ahead while one writes, asking again, and the list."""

from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import quote
from zoneinfo import ZoneInfo

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import Membership, User
from apps.clusters.domain.observed.objects import ObservedKind, QuotaSnapshot
from apps.clusters.models import ObservedObject
from apps.quota_requests import services
from apps.quota_requests.models import ChangeRequest
from apps.web.quota_requests.request_detail import detail_for
from apps.web.quota_requests.request_input import RequestForm, edited_from
from tests.quota_requests.portal import KEY, Portal, make_sighting
from tests.web.pages import records_of, text_of
from tests.web.test_requests_page import NEW, PLACE, do, of, posted

pytestmark = pytest.mark.django_db
SignIn = Callable[[User], Client]
PART = {"HX-Request": "true"}
ASK = f'href="/quotas/requests/new/?key={quote(PLACE, safe="")}&amp;'


def see(portal: Portal, hard: float, *, used: float) -> None:
    """Let the quota be seen anew, in place of what was seen of it."""
    ObservedObject.objects.filter(kind=ObservedKind.RESOURCE_QUOTA.value).delete()
    portal.see(hard, used=used)


# ---------------------------------------------------------------- choosing


def test_a_request_begins_with_a_choice_of_the_keys_one_may_ask_for(
    quota: Portal, signed_in: SignIn
) -> None:
    ada = of(quota, signed_in, "ada")
    assert 'href="/quotas/requests/new/' in text_of(ada, "/quotas/requests/")
    page = text_of(ada, "/quotas/requests/new/")
    assert ASK in page
    assert "6 of 6" in page
    assert "100 %" in page


@pytest.mark.parametrize(
    ("find", "there"),
    [("", True), ("TEAM-vis", True), ("nvidia.com", True), ("nowhere", False), ("\0", False)],
)
def test_the_choice_is_searched_by_namespace_quota_and_key(
    find: str, there: bool, quota: Portal, signed_in: SignIn
) -> None:
    page = text_of(of(quota, signed_in, "ada"), f"/quotas/requests/new/?find={quote(find)}")
    assert (ASK in page) is there
    assert ("No quota matches" in page) is not there


@pytest.mark.parametrize(("who", "there"), [("cleo", True), ("dan", False)])
def test_the_choice_has_what_a_person_may_ask_for_and_nothing_else(
    who: str, there: bool, quota: Portal, signed_in: SignIn
) -> None:
    assert (ASK in text_of(of(quota, signed_in, who), "/quotas/requests/new/")) is there


def test_who_may_not_ask_is_told_whom_to_ask(quota: Portal, signed_in: SignIn) -> None:
    page = text_of(of(quota, signed_in, "ben"), "/quotas/requests/new/")
    assert "For yours, ask ada." in page
    assert ASK not in page
    page = text_of(of(quota, signed_in, "finn"), "/quotas/requests/new/")
    assert "The leads of a team and administrators request" in page
    assert "For yours" not in page


@pytest.mark.parametrize("path", ["/quotas/", "/capacity/teams/vision/?tab=quotas"])
def test_lists_of_quotas_lead_to_the_form_where_one_may_ask(
    path: str, quota: Portal, signed_in: SignIn
) -> None:
    assert ASK in text_of(of(quota, signed_in, "ada"), path)
    page = text_of(of(quota, signed_in, "ben"), path)
    assert KEY in page
    assert ASK not in page


def test_another_teams_page_shows_no_quotas(quota: Portal, signed_in: SignIn) -> None:
    page = text_of(of(quota, signed_in, "dan"), "/capacity/teams/vision/?tab=quotas")
    assert "team-quotas" not in page
    assert KEY not in page


def test_more_keys_need_no_more_queries(quota: Portal, signed_in: SignIn) -> None:
    ada = of(quota, signed_in, "ada")
    text_of(ada, "/quotas/requests/new/")
    cache.clear()
    with CaptureQueriesContext(connection) as one:
        text_of(ada, "/quotas/requests/new/")
    body = QuotaSnapshot({KEY: 6.0}, {KEY: 6.0}, {KEY: 5.0})
    of_cluster = (quota.cluster, ObservedKind.RESOURCE_QUOTA)
    make_sighting(*of_cluster, "second", body, namespace="team-vision", at=quota.now)
    cache.clear()
    with CaptureQueriesContext(connection) as several:
        assert "second" in text_of(ada, "/quotas/requests/new/")
    assert len(several) == len(one)


# ---------------------------------------------------------------- looking ahead


def test_the_evidence_is_there_before_an_amount_is_typed(quota: Portal, signed_in: SignIn) -> None:
    ada = of(quota, signed_in, "ada")
    assert 'hx-trigger="load, ' in text_of(ada, NEW)
    part = ada.post("/quotas/requests/create", posted(then="preview", after=""), headers=PART)
    page = part.content.decode()
    assert part.status_code == 200
    assert "Evidence" in page
    assert "Utilization" in page
    assert "Say to what the quota is to change" in page
    assert "Quota ÷ capacity" not in page
    assert not ChangeRequest.objects.exists()


def test_what_is_typed_wrong_is_said_and_the_evidence_stays(
    quota: Portal, signed_in: SignIn
) -> None:
    ada = of(quota, signed_in, "ada")
    for wrong, said in (({"after": "many"}, "quantity"), ({"until": "soon"}, "This is no time")):
        given = posted(then="preview") | wrong
        page = ada.post("/quotas/requests/create", given, headers=PART).content.decode()
        assert said in page
        assert "Utilization" in page


def test_the_tiers_are_named_once_on_the_form(asked: Portal, signed_in: SignIn) -> None:
    page = of(asked, signed_in, "ada").post("/quotas/requests/create", posted(then="preview"))
    assert page.content.decode().count("This key can reach") == 1


def test_who_may_not_ask_sees_no_evidence(quota: Portal, signed_in: SignIn) -> None:
    given = posted(then="preview", after="")
    page = of(quota, signed_in, "ben").post("/quotas/requests/create", given, headers=PART)
    assert "Utilization" not in page.content.decode()


def test_a_used_amount_above_the_quota_is_said(quota: Portal, signed_in: SignIn) -> None:
    see(quota, 6, used=7.0)
    assert "7 are used, 1 more than it allows" in text_of(of(quota, signed_in, "ada"), NEW)


# ---------------------------------------------------------------- editing


def offered(quota: Portal, signed_in: SignIn) -> tuple[int, Client]:
    """Return a request of ada's with a counter-offer of 7, and her session."""
    pk, cleo = quota.submitted(), of(quota, signed_in, "cleo")
    do(cleo, pk, "take")
    do(cleo, pk, "ask_changes", text="Seven would do.", offer="7")
    return pk, of(quota, signed_in, "ada")


def test_the_form_of_a_request_takes_up_what_was_offered_and_keeps_what_was_typed(
    quota: Portal, signed_in: SignIn
) -> None:
    pk, ada = offered(quota, signed_in)
    page = text_of(ada, f"/quotas/requests/{pk}/edit/")
    assert "Offered instead: 7 GPUs" in page
    assert "Take 7" in page
    assert "This key can reach" in page
    version = str(ChangeRequest.objects.get(pk=pk).version)
    typed = {"version": version, "before": "6", "after": "8", "reason": "Mine, half writ"}
    page = ada.post(f"/quotas/requests/{pk}/save", typed | {"then": "take"}).content.decode()
    assert 'name="after" value="7"' in page
    assert "Mine, half writ" in page
    assert f'name="version" value="{version}"' in page
    assert ChangeRequest.objects.get(pk=pk).after == "8"
    typed |= {"after": "7", "then": "save"}
    assert ada.post(f"/quotas/requests/{pk}/save", typed).status_code == 302
    assert ChangeRequest.objects.get(pk=pk).after == "7"


def test_an_edit_is_looked_ahead_of_and_keeps_nothing(asked: Portal, signed_in: SignIn) -> None:
    pk = asked.draft()
    ada = of(asked, signed_in, "ada")
    typed = {"version": "1", "before": "6", "after": "9", "reason": "", "then": "preview"}
    part = ada.post(f"/quotas/requests/{pk}/save", typed, headers=PART).content.decode()
    assert "<html" not in part
    assert "Quota ÷ capacity" in part
    page = ada.post(f"/quotas/requests/{pk}/save", typed).content.decode()
    assert "Quota ÷ capacity" in page
    assert 'name="after" value="9"' in page
    assert ChangeRequest.objects.get(pk=pk).version == 1


def test_an_edit_moves_no_time_that_the_form_cannot_tell(quota: Portal) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    # Both are 2:30 there, an hour apart; and the form drops seconds.
    start = datetime(2030, 10, 27, 0, 30, 15, tzinfo=UTC)
    end = datetime(2030, 10, 27, 1, 30, tzinfo=UTC)
    pk = quota.draft(starts_at=start, until=end)
    detail = detail_for(pk, quota.actor("ada"))
    shown = RequestForm.of_request(detail, berlin)
    typed = {name: shown[name].value() for name in shown.fields}
    assert f"{typed['until']:%H:%M}" == f"{typed['starts_at']:%H:%M}" == "02:30"
    form = RequestForm(typed | {"until": "2030-10-27T02:30", "starts_at": "2030-10-27T02:30"})
    assert form.is_valid()
    edited = edited_from(form, detail.row, berlin)
    assert (edited.starts_at, edited.until) == (start, end)
    form = RequestForm(typed | {"until": "2030-10-28T18:00", "starts_at": ""})
    assert form.is_valid()
    edited = edited_from(form, detail.row, berlin)
    assert edited.starts_at is None
    assert edited.until == datetime(2030, 10, 28, 17, tzinfo=UTC)


@pytest.mark.parametrize("field", ["starts_at", "until"])
def test_a_time_that_clocks_skip_is_refused(field: str, quota: Portal) -> None:
    pk = quota.draft()
    detail = detail_for(pk, quota.actor("ada"))
    typed = {"before": "6", "after": "9", "reason": "A run", field: "2031-03-30T02:30"}
    form = RequestForm(typed)
    assert form.is_valid()
    with pytest.raises(services.RequestRefused, match="skip 2031-03-30T02:30"):
        edited_from(form, detail.row, ZoneInfo("Europe/Berlin"))
    # The clocks of London go on an hour of UTC later, those of UTC never.
    assert getattr(edited_from(form, detail.row, ZoneInfo("Europe/London")), field) is not None


# ---------------------------------------------------------------- ended ones


def test_withdrawing_takes_two_steps_and_what_was_withdrawn_can_be_asked_for_again(
    quota: Portal, signed_in: SignIn
) -> None:
    pk, ada = quota.submitted(), of(quota, signed_in, "ada")
    page = text_of(ada, f"/quotas/requests/{pk}/")
    assert "Request again" not in page
    assert "A withdrawn request cannot be reopened" in page
    do(ada, pk, "withdraw")
    again = f"/quotas/requests/new/?key={quote(PLACE, safe='')}&again={pk}"
    assert f'href="{again.replace("&", "&amp;")}"' in text_of(ada, f"/quotas/requests/{pk}/")
    page = text_of(ada, again)
    request = ChangeRequest.objects.get(pk=pk)
    assert 'name="after" value="8"' in page
    assert request.reason in page
    assert f'href="/quotas/requests/{pk}/"' in page
    assert "Request again" not in text_of(of(quota, signed_in, "ben"), f"/quotas/requests/{pk}/")


def test_asking_again_begins_at_what_the_quota_is_now_and_leaves_out_days_gone_by(
    quota: Portal, signed_in: SignIn
) -> None:
    pk, ada = quota.submitted(), of(quota, signed_in, "ada")
    do(ada, pk, "withdraw")
    long_ago = quota.now.replace(year=2020)
    ChangeRequest.objects.filter(pk=pk).update(needed_by=long_ago, until=long_ago)
    see(quota, 7, used=6.0)
    page = text_of(ada, f"{NEW}&again={pk}")
    assert 'name="before" value="7"' in page
    assert "2020" not in page


@pytest.mark.parametrize("again", ["x", "-1", "9" * 30, "\u0663"])
def test_a_number_that_is_none_fills_nothing_in(
    again: str, quota: Portal, signed_in: SignIn
) -> None:
    page = text_of(of(quota, signed_in, "ada"), f"{NEW}&again={quote(again)}")
    assert "Copied from" not in page


def test_what_others_asked_for_fills_in_nobodys_form(quota: Portal, signed_in: SignIn) -> None:
    pk = quota.submitted()
    Membership.objects.filter(username="dan").update(lead=True)
    response = of(quota, signed_in, "dan").get(f"{NEW}&again={pk}")
    assert response.status_code in {404, 422}
    assert of(quota, signed_in, "ada").get(f"{NEW}&again=123456").status_code == 404


def test_what_stands_in_the_way_is_a_link(quota: Portal, signed_in: SignIn) -> None:
    first, ada = quota.submitted(), of(quota, signed_in, "ada")
    for response in (
        ada.post("/quotas/requests/create", posted(then="submit", after="9")),
        do(ada, ChangeRequest.objects.latest("pk").pk, "submit"),
    ):
        page = response.content.decode()
        assert response.status_code == 409
        assert f'<a href="/quotas/requests/{first}/">Open request {first}</a>' in page


# ---------------------------------------------------------------- the list


def test_the_list_offers_the_teams_that_one_sees(quota: Portal, signed_in: SignIn) -> None:
    def teams(who: str) -> str:
        page = text_of(of(quota, signed_in, who), "/quotas/requests/")
        start = page.index('id="of-team"')
        return page[start : page.index("</select>", start)]

    assert "<option>vision</option>" in teams("ada")
    assert "vision" not in teams("dan")
    assert "vision" in teams("finn")


def test_the_list_is_short_and_its_file_is_whole(quota: Portal, signed_in: SignIn) -> None:
    pk, ada = quota.submitted(), of(quota, signed_in, "ada")
    tiers = ["one", "two", "three"]
    until = quota.now.replace(year=2031, month=3, day=4, hour=11, minute=5, second=6)
    ChangeRequest.objects.filter(pk=pk).update(tiers=tiers, until=until, reason="y" * 500)
    page = text_of(ada, "/quotas/requests/")
    assert "3 tiers" in page
    assert 'title="one, two, three"' in page
    assert "4 Mar 2031" in page
    assert "05:06</td>" not in page
    assert f">{'y' * 120}…</td>" in page
    (record,) = records_of(ada, "/quotas/requests/?format=csv&table=requests")
    assert record["tiers"] == "one, two, three"
    assert record["until"].startswith("2031-03-04T11:05:06")
    assert record["reason"] == "y" * 500


def test_an_empty_list_says_what_to_do(quota: Portal, signed_in: SignIn) -> None:
    page = text_of(of(quota, signed_in, "ada"), "/quotas/requests/")
    assert "No quota requests yet." in page
    assert 'href="/quotas/requests/new/' in page
    narrowed = text_of(of(quota, signed_in, "ada"), "/quotas/requests/?state=applied")
    assert "Take off a filter." in narrowed


def test_who_may_not_ask_is_not_led_there(quota: Portal, signed_in: SignIn) -> None:
    assert "/quotas/requests/new/" not in text_of(of(quota, signed_in, "ben"), "/quotas/requests/")
