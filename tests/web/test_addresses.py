"""What pages make of their addresses, and the addresses that they give."""

import html
import re
from datetime import UTC, datetime
from urllib.parse import unquote, urlsplit

import pytest
from django.test import Client
from django.urls import reverse

from apps.web.navigation import GROUPS
from tests.factories import Portal, make_pod, make_report, make_workload
from tests.web.conftest import DAILY, HOURLY
from tests.web.pages import PAGES, table_links, text_of


@pytest.mark.parametrize("path", PAGES)
def test_nonsense_in_the_address_is_said_and_breaks_nothing(path: str, admin: Client) -> None:
    page = text_of(admin, f"{path}?window=%00bogus&page=-7&state=odd&namespace=%F0%9F%98%80")
    assert "There is no window" in page
    assert "The last 7 days are shown." in page


@pytest.mark.parametrize(
    "address",
    ["/workloads/west/vision/Job/train/?pods=garbage", "/admin/data-quality/?cursor=garbage"],
)
def test_a_broken_cursor_is_said_and_breaks_nothing(address: str, admin: Client) -> None:
    assert "points into a list that is no longer there" in text_of(admin, address)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("/capacity/tiers/none/", "There is no tier “none”."),
        ("/capacity/teams/none/", "There is no team “none”."),
        ("/pods/west/none/", "There is no such pod, or you may not see it."),
        ("/nothing-here/", "There is no such page"),
        (
            f"/?{HOURLY}&format=csv&table=x",
            "This page has no table “x”; it has: tiers, heat",
        ),
    ],
)
def test_what_is_not_there_is_a_404_that_says_so(address: str, says: str, admin: Client) -> None:
    response = admin.get(address)
    assert response.status_code == 404
    assert says in response.content.decode()


def test_every_link_keeps_the_window(admin: Client) -> None:
    for path in PAGES:
        page = text_of(admin, f"{path}?{HOURLY}")
        tags = re.findall(r'<a [^>]*href="/[^>]*>', page)
        # Steps, the bars of a month, single days and single hours lead elsewhere on purpose.
        others = ('id="step-', "Thirty days", "/?start=")
        kept = [tag for tag in tags if not any(text in tag for text in others)]
        links = [html.unescape(re.findall(r'href="([^"]*)"', tag)[0]) for tag in kept]
        assert links
        for link in links:
            assert "first=2025-10-25&last=2025-10-27" in link or "window=" in link, link


@pytest.mark.parametrize("name", ["a?b#c", "50%", "a&b=c", "ünï", "a b"])
def test_links_of_a_page_about_an_odd_name_lead_back_to_it(
    name: str, portal: Portal, admin: Client
) -> None:
    work = make_workload(portal.clusters[0], "vision", name)
    make_pod(work, "odd", created_at=datetime(2025, 10, 25, 6, tzinfo=UTC))
    address = reverse("web:workload", args=["west", "vision", "Job", name])
    page = text_of(admin, f"{address}?{HOURLY}")
    links = [
        *table_links(page),
        *(html.unescape(a) for a in re.findall(r'class="preset" href="([^"]+)"', page)),
        *(f"{html.unescape(a)}?{DAILY}" for a in re.findall(r'action="([^"]+)" hx-get', page)),
    ]
    assert len(links) > 7
    for link in links:
        assert unquote(urlsplit(link).path) == unquote(address)
        assert urlsplit(link).query
        assert admin.get(link).status_code == 200


def test_a_day_that_the_calendar_skipped_is_said_to_be_missing(admin: Client) -> None:
    make_report("Pacific/Apia")
    for skipped in ("first=2011-12-30&last=2011-12-30", "start=2011-12-30&end=2011-12-31"):
        page = text_of(admin, f"/?{skipped}")
        assert "the calendar of Pacific/Apia skipped it" in page
    around = text_of(admin, "/admin/data-quality/?first=2011-12-29&last=2011-12-31")
    assert "29 Dec – 31 Dec 2011" in around
    assert "30 Dec" not in around


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("/tiers/gold/?window=7d&team=vision", "/capacity/tiers/gold/?window=7d&team=vision"),
        ("/teams/a%3Fb%23c/statement/", "/capacity/teams/a%3Fb%23c/statement/"),
        ("/devices/", "/capacity/gpus/"),
        ("/requests/7/", "/quotas/requests/7/"),
        ("/review/", "/quotas/approvals/"),
        ("/exports/3/file", "/costs/exports/3/file"),
        ("/health/data/?cluster=west", "/admin/data-quality/?cluster=west"),
        ("/people/2/", "/admin/users/2/"),
        ("/notices/?kind=idle#notice-4", "/alerts/?kind=idle#notice-4"),
        ("/notices/sent/", "/alerts/deliveries/"),
    ],
)
def test_an_address_of_before_leads_to_where_the_page_is_now(old: str, new: str) -> None:
    response = Client().get(old.partition("#")[0])
    assert response.status_code == 301
    assert response["Location"] == new.partition("#")[0]


def test_an_address_of_before_leads_to_no_other_host() -> None:
    assert Client().get("/teams//evil.example/")["Location"] == "/capacity/teams//evil.example/"


def test_each_page_of_the_navigation_has_a_key_of_its_own() -> None:
    keys = [page.key for _, pages in GROUPS for page in pages]
    assert len(set(keys)) == len(keys)
