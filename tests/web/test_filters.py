"""Filters of an address: what each page is narrowed by, and how links and files keep it."""

import html
import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from django.db import connection
from django.http import QueryDict
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import User
from apps.accounts.permissions import EVERYTHING
from apps.usage.domain.usage_query import Filters
from apps.web.components.page_query import window_from
from apps.web.explain.explanation import lasting_href
from apps.web.explain.figures import FIGURES, FigureScope
from apps.web.query_session import QuerySession
from tests.factories import Portal
from tests.thinned import thinned
from tests.web.conftest import HOURLY
from tests.web.pages import file_of, records_of, table_links, text_of
from tests.web.shown import figures_of, tables_of

SignIn = Callable[[User], Client]

# Page → the keys of the filters that it takes.
TAKES = {
    "/": {"cluster", "tier", "team", "namespace", "gpu_model", "capacity_type"},
    "/capacity/teams/": {"cluster", "tier", "team", "namespace", "gpu_model", "capacity_type"},
    "/capacity/tiers/gold/": {"cluster", "team", "namespace", "gpu_model", "capacity_type"},
    "/capacity/teams/vision/": {"cluster", "tier", "namespace", "gpu_model", "capacity_type"},
    "/workloads/west/vision/Job/train/": {"tier", "gpu_model"},
    "/pods/west/uid-train-0/": set(),
    "/admin/data-quality/": {"cluster"},
}
ALL = {
    "cluster": "west",
    "tier": "gold",
    "team": "vision",
    "namespace": "vision",
    "gpu_model": "NVIDIA-H100-80GB-HBM3",
    "capacity_type": "on-demand",
}


def chips(page: str) -> dict[str, tuple[bool, str]]:
    """Return by its text whether a filter of the page applies, and where taking it off leads."""
    found = {}
    for href, label in re.findall(r'class="chip[^"]*" href="([^"]+)" aria-label="([^"]+)"', page):
        text, aside, _ = (
            html.unescape(label).removeprefix("Remove the filter ").partition(" not applied here")
        )
        found[text] = (not aside, html.unescape(href))
    return found


def choices(page: str) -> dict[str, list[str]]:
    """Return the names that the page's menu offers, by the key of the filter."""
    return {
        key: [html.unescape(name) for name in re.findall(r"<option>([^<]*)</option>", select)]
        for key, select in re.findall(r'<select[^>]*id="filter-(\w+)">(.*?)</select>', page, re.S)
    }


# ---------------------------------------------------------------- what narrows what


@pytest.mark.parametrize("path", TAKES)
def test_a_page_is_narrowed_by_what_it_takes_and_says_what_it_does_not(
    path: str, admin: Client
) -> None:
    query = "&".join(f"{key}={name}" for key, name in ALL.items())
    shown = chips(text_of(admin, f"{path}?{HOURLY}&{query}"))
    assert len(shown) == len(ALL)
    applies = {value for value, (applied, _) in shown.items() if applied}
    labels = {"gpu_model": "GPU model", "capacity_type": "Capacity type"}
    assert applies == {
        f"{labels.get(key, key.capitalize())} {ALL[key]}" for key in ALL if key in TAKES[path]
    }


@pytest.mark.parametrize("path", TAKES)
def test_every_filter_stays_in_the_links_of_a_page(path: str, admin: Client) -> None:
    query = "&".join(f"{key}={name}" for key, name in ALL.items())
    page = text_of(admin, f"{path}?{HOURLY}&{query}")
    assert f'href="/capacity/teams/?{HOURLY}&{query}"'.replace("&", "&amp;") in page
    assert f'href="/admin/data-quality/?{HOURLY}&{query}"'.replace("&", "&amp;") in page


def test_taking_a_filter_off_leaves_the_others(admin: Client) -> None:
    query = f"/?{HOURLY}&tier=gold&tier=silver&team=vision"
    shown = chips(text_of(admin, query))
    assert shown["Tier gold"] == (True, f"/?{HOURLY}&tier=silver&team=vision")
    assert shown["Team vision"] == (True, f"/?{HOURLY}&tier=gold&tier=silver")


def test_filters_of_the_overview_leave_only_what_they_name(admin: Client) -> None:
    query = f"{HOURLY}&tier=silver&team=speech"
    one = tables_of(text_of(admin, f"/?{query}"))
    assert [row[0].text for row in one["tiers"].rows[1:]] == ["silver"]
    teams = tables_of(text_of(admin, f"/capacity/teams/?{query}"))["teams"]
    assert [row[0].text for row in teams.rows[1:]] == ["speech"]
    (speech,) = records_of(admin, f"/capacity/teams/?{query}&format=csv")
    (silver,) = (
        row
        for row in records_of(admin, f"/capacity/teams/speech/?{HOURLY}&format=csv&table=tiers")
        if row["tier"] == "silver"
    )
    assert speech["allocated_gpu_hours"] == silver["allocated_gpu_hours"]
    both = tables_of(text_of(admin, f"/?{HOURLY}&tier=silver&tier=gold"))
    assert [row[0].text for row in both["tiers"].rows[1:]] == ["gold", "silver"]


def test_what_a_team_holds_has_no_capacity_on_filtered_pages(admin: Client) -> None:
    page = text_of(admin, f"/capacity/tiers/gold/?{HOURLY}&team=vision")
    facts = re.findall(r'<dl class="(?:facts tier-facts|figure-row)".*?>(.*?)</dl>', page, re.S)
    assert facts
    assert not any("Capacity" in fact or "of capacity" in fact for fact in facts)
    legend = re.findall(r'<ul class="class-legend"[^>]*>(.*?)</ul>', page, re.S)[0]
    assert "Unallocated" not in legend
    of_team = figures_of(text_of(admin, f"/?{HOURLY}&team=vision"))
    assert "Capacity" not in of_team
    assert re.match(r"[\d.]+ GPUs", of_team["Allocated average"])
    of_tier = figures_of(text_of(admin, f"/?{HOURLY}&tier=gold"))
    assert re.match(r"[\d.]+ GPUs", of_tier["Capacity average"])


@pytest.mark.parametrize(
    ("query", "gpu_hours"),
    [("", "7"), ("&namespace=vision", "6"), ("&tier=gold", "5"), ("&capacity_type=spot", "2")],
    ids=["all", "a namespace", "a tier", "spot"],
)
def test_the_page_of_a_team_adds_up_to_its_filters(
    query: str, gpu_hours: str, admin: Client
) -> None:
    hours = 71  # of the 73 of the window two have no facts
    rows = records_of(admin, f"/capacity/teams/vision/?{HOURLY}{query}&format=csv&table=workloads")
    total = sum(float(row["allocated_gpu_hours"]) for row in rows if row["cluster"] != "Total")
    assert total == float(gpu_hours) * hours
    tiers = records_of(admin, f"/capacity/teams/vision/?{HOURLY}{query}&format=csv&table=tiers")
    assert sum(float(row["allocated_gpu_hours"]) for row in tiers) == total


@pytest.mark.parametrize(
    "address",
    [
        f"/?{HOURLY}&tier=silver&team=speech",
        f"/capacity/tiers/silver/?{HOURLY}&team=speech&cluster=east",
        f"/capacity/teams/?{HOURLY}&capacity_type=spot",
        f"/capacity/teams/vision/?tab=workloads&{HOURLY}&namespace=vision-prod",
        f"/workloads/west/vision/Job/train/?{HOURLY}&tier=silver",
    ],
)
def test_files_of_a_filtered_page_have_its_rows_and_no_others(address: str, admin: Client) -> None:
    page = text_of(admin, address)
    shown = tables_of(page)
    for link in table_links(page):
        lines = file_of(admin.get(link)).splitlines()
        table = re.findall(r"table=([\w-]+)", link)[0]
        # The table under a chart shows its last rows; its file has all.
        # A head and 73 hours; two of them are without metrics.
        of_hours = {"ledger": 74, "gpus-1": 74, "utilization-hours": 72, "memory-hours": 72}
        assert len(lines) == of_hours.get(table, len(shown[table].rows)), link


def test_a_workload_is_narrowed_to_a_tier_and_still_there_without_anything_on_it(
    admin: Client,
) -> None:
    path = f"/workloads/west/vision/Job/train/?{HOURLY}"
    pods = tables_of(text_of(admin, f"{path}&tab=pods&tier=silver"))["pods"]
    assert [row[0].text for row in pods.rows[1:]] == ["train-1"]
    page = text_of(admin, f"{path}&tier=gold&gpu_model=NVIDIA-A100-SXM4-80GB")
    assert "This workload held no GPU in this window" in page


# ---------------------------------------------------------------- what waits


def pending_cells(page: str) -> list[str]:
    """Return the pending pods of the tiers of a home, as one reads them."""
    cells = re.findall(r'<span id="waiting-[^"]*"[^>]*>(.*?)</span>', page, re.S)
    return [re.sub(r"<[^>]+>", "", cell).strip() for cell in cells]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("team=vision&tier=gold", ["1"]),
        ("team=speech&tier=gold", ["0"]),
        ("namespace=vision&tier=gold", ["1"]),
        ("namespace=vision-prod&tier=gold", ["0"]),
        ("cluster=east&team=vision", []),
        ("capacity_type=on-demand&tier=gold", ["1"]),
    ],
)
def test_pending_work_is_of_the_filters_too(query: str, words: list[str], admin: Client) -> None:
    assert pending_cells(text_of(admin, f"/?{HOURLY}&{query}")) == words


def test_the_minutes_news_keep_the_filters(admin: Client) -> None:
    page = text_of(admin, f"/?{HOURLY}&team=speech")
    (address,) = re.findall(r'hx-get="([^"]*part=now[^"]*)"', page)
    part = text_of_part(admin, html.unescape(address))
    assert set(pending_cells(part)) == {"0"}


def text_of_part(client: Client, address: str) -> str:
    return client.get(address, headers={"HX-Request": "true"}).content.decode()


def test_pending_work_minds_no_kind_of_gpu(admin: Client) -> None:
    assert "1" in pending_cells(text_of(admin, f"/?{HOURLY}&capacity_type=spot"))


# ---------------------------------------------------------------- the menu and its problems


def test_the_menu_offers_what_is_not_in_force(admin: Client) -> None:
    offered = choices(text_of(admin, f"/?{HOURLY}&tier=gold"))
    assert "gold" not in offered["tier"]
    assert "silver" in offered["tier"]
    assert offered["team"] == ["speech", "unassigned", "vision"]
    assert offered["capacity_type"] == ["on-demand", "spot", "reserved", "unknown"]
    on_tier = choices(text_of(admin, f"/capacity/tiers/gold/?{HOURLY}"))
    assert "tier" not in on_tier
    assert choices(text_of(admin, f"/admin/data-quality/?{HOURLY}")) == {
        "cluster": ["east", "west"]
    }


def test_the_menu_keeps_what_is_in_force_and_sends_no_empty_filter_on(admin: Client) -> None:
    page = text_of(admin, f"/?{HOURLY}&tier=gold&team=&namespace=")
    (form,) = re.findall(r'<form class="filter-sheet"(.*?)</form>', page, re.S)
    hidden = re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form)
    assert hidden == [("first", "2025-10-25"), ("last", "2025-10-27"), ("tier", "gold")]


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("tier=iron", "There is no tier “iron”; there are: gold, silver"),
        ("team=nobody", "There is no team “nobody”; there are: speech, unassigned, vision."),
        ("gpu_model=abacus", "There is no GPU model “abacus”; there are: "),
        ("capacity_type=free", "There is no capacity type “free”; there are: on-demand, spot"),
        ("namespace=nowhere", "There is no namespace “nowhere” that you may see."),
    ],
)
def test_names_that_are_not_there_are_told_and_give_no_file(
    query: str, problem: str, admin: Client
) -> None:
    page = text_of(admin, f"/?{HOURLY}&{query}")
    assert problem in page
    assert chips(page) == {}
    response = admin.get(f"/?{HOURLY}&{query}&format=csv&table=tiers")
    assert response.status_code == 400
    assert problem in response.content.decode()


@pytest.mark.parametrize(
    ("name", "path", "keys"),
    [
        *thinned(["%00", "%3Cscript%3E", "x" * 500, "%F0%9F%92%A9"], ["/"], [[key] for key in ALL]),
        *thinned(["%00", "%3Cscript%3E", "x" * 500, "%F0%9F%92%A9"], TAKES, [list(ALL)]),
    ],
)
def test_hostile_names_break_no_page(name: str, path: str, keys: list[str], admin: Client) -> None:
    page = text_of(admin, f"{path}?{HOURLY}&{'&'.join(f'{key}={name}' for key in keys)}")
    assert "<script>" not in page.replace("<script>alert", "")


# ---------------------------------------------------------------- who may see what


def test_a_namespace_of_others_looks_like_one_that_is_not_there(
    portal: Portal, signed_in: SignIn
) -> None:
    client = signed_in(portal.dan)
    for path in ("/", "/capacity/teams/vision/", "/capacity/tiers/gold/"):
        hidden = text_of(client, f"{path}?{HOURLY}&namespace=vision-prod")
        absent = text_of(client, f"{path}?{HOURLY}&namespace=vision-nope")
        assert "There is no namespace “vision-prod” that you may see." in hidden
        assert tables_of(hidden) == tables_of(absent)
    assert chips(text_of(client, f"/?{HOURLY}&namespace=speech"))["Namespace speech"][0]


def test_sums_of_another_team_are_there_and_its_namespaces_are_not(
    portal: Portal, signed_in: SignIn
) -> None:
    page = text_of(signed_in(portal.dan), f"/?{HOURLY}&team=vision")
    assert re.search(r'class="key-value"[^>]*>7</a>', page)  # GPUs that vision holds now
    for hidden in ("vision-prod", "train", "Deployment"):
        assert hidden not in page


# ---------------------------------------------------------------- explanations


def test_figures_of_a_filtered_page_are_explained_with_its_filters(admin: Client) -> None:
    query = f"{HOURLY}&team=vision&capacity_type=on-demand&capacity_type=spot"
    page = text_of(admin, f"/capacity/teams/?{query}")
    rows = tables_of(page)["teams"].rows
    heads = [cell.text.strip().split("\n")[0] for cell in rows[0]]
    assert heads[0].startswith("Team")
    link = next(
        html.unescape(found)
        for found in re.findall(r'href="(/explain/\?[^"]*figure=allocated_gpu_hours[^"]*)"', page)
        if "team=vision" in found
    )
    assert "capacity_type=on-demand&capacity_type=spot" in link
    explained = text_of(admin, link)
    assert "142" in explained  # two GPUs over 71 hours
    assert set(chips(explained)) == {"Capacity type on-demand", "Capacity type spot"}


def test_a_lasting_address_keeps_several_names_of_a_kind(portal: Portal) -> None:
    now = datetime(2025, 10, 27, 12, tzinfo=UTC)
    choice = window_from(QueryDict("window=yesterday"), zone=portal.zone, now=now)
    both = Filters(tier=("gold", "silver"))
    reading = QuerySession(choice, both, EVERYTHING, now, (), (), ())
    lasting = lasting_href(FIGURES["busy_gpu_hours"], FigureScope({"team": "vision"}), reading)
    assert lasting.startswith("/explain/?figure=busy_gpu_hours&team=vision&start=")
    assert lasting.endswith("&tier=gold&tier=silver")


# ---------------------------------------------------------------- costs


@pytest.mark.parametrize(
    "path", ["/", "/capacity/teams/", "/capacity/tiers/gold/", "/capacity/teams/vision/"]
)
def test_more_names_of_a_filter_need_no_more_queries(path: str, admin: Client) -> None:
    counts = []
    one, more = "capacity_type=spot&team=vision", "&capacity_type=on-demand&team=speech"
    for query in (one, one + more):
        with CaptureQueriesContext(connection) as asked:
            text_of(admin, f"{path}?{HOURLY}&{query}")
        counts.append(len(asked))
    assert counts[1] <= counts[0]


def test_tiers_are_narrowed_by_tier_and_have_no_range_to_choose(admin: Client) -> None:
    page = text_of(admin, "/capacity/tiers/?tier=silver")
    assert "Remove the filter Tier silver" in page
    assert [
        row["tier"] for row in records_of(admin, "/capacity/tiers/?tier=silver&format=csv")
    ] == ["silver"]
    assert "days-menu" not in page


def test_the_home_of_finance_keeps_filters_that_it_is_not_narrowed_by(
    portal: Portal, signed_in: SignIn
) -> None:
    page = text_of(signed_in(portal.finn), "/?team=vision")
    assert "Remove the filter Team vision not applied here" in page
    assert "/costs/?window=7d&amp;team=vision" in page
