"""What the pages say, link to and hand out as files."""

import csv
import html
import io
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from pytest_django import DjangoAssertNumQueries

from apps.accounts.models import User
from tests.factories import (
    Portal,
    make_pod,
    make_report,
    make_team,
    make_tier,
    make_workload,
)
from tests.web.conftest import DAILY, HOURLY
from tests.web.shown import ShownCell, tables_of

SignIn = Callable[[User], Client]

# Page → the most queries that it may need, signing in and report settings included.
PAGES = {
    "/": 26,
    "/tiers/gold/": 30,
    "/teams/": 20,
    "/teams/vision/": 26,
    "/workloads/west/vision/Job/train/": 28,
    "/pods/west/uid-train-0/": 20,
    "/health/data/": 16,
}


@pytest.fixture
def admin(portal: Portal, signed_in: SignIn) -> Client:
    return signed_in(portal.cleo)


def text_of(client: Client, address: str) -> str:
    response = client.get(address)
    assert response.status_code == 200, address
    return response.content.decode()


@pytest.mark.parametrize(("path", "most"), PAGES.items())
@pytest.mark.parametrize("query", [HOURLY, DAILY, "window=7d"])
def test_a_page_needs_few_queries(
    path: str,
    most: int,
    query: str,
    admin: Client,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    with django_assert_max_num_queries(most):
        text_of(admin, f"{path}?{query}")


@pytest.mark.parametrize("path", ["/", "/teams/", "/teams/vision/"])
def test_more_rows_need_no_more_queries(path: str, portal: Portal, admin: Client) -> None:
    with CaptureQueriesContext(connection) as before:
        text_of(admin, f"{path}?{HOURLY}")
    for n in range(8):
        make_team(f"team-{n}", f"space-{n}")
        make_tier(f"tier-{n}", position=10 + n)
    with CaptureQueriesContext(connection) as after:
        text_of(admin, f"{path}?{HOURLY}")
    assert len(after) == len(before)


def file_of(response: Any) -> str:
    """Return the text of a download, streamed or not."""
    text: str = response.getvalue().decode()
    return text


def records_of(client: Client, address: str) -> list[dict[str, str]]:
    """Return the lines of a downloaded table by their head."""
    response = client.get(address)
    assert response.status_code == 200, address
    return list(csv.DictReader(io.StringIO(file_of(response), newline="")))


def table_links(page: str) -> list[str]:
    """Return the addresses of a page's downloads."""
    return [
        html.unescape(link) for link in re.findall(r'class="csv-link[^"]*" href="([^"]+)"', page)
    ]


def matches(cell: ShownCell, key: str, value: str) -> bool:
    """Say whether a shown cell stands for an exact value: by its title, else by its text.

    What still lasts is a moment longer in the file.
    """
    if value == "":
        return cell.text in {"–", ""}
    full = cell.title.split(" ")[0] if cell.title else cell.text
    if key.endswith("_seconds") and full[0].isdigit():
        return float(value) == pytest.approx(float(full), abs=60)
    return full == value


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("query", [HOURLY, DAILY])
def test_every_table_downloads_as_exactly_what_is_shown(
    path: str, query: str, admin: Client
) -> None:
    page = text_of(admin, f"{path}?{query}")
    shown = tables_of(page)
    links = table_links(page)
    assert len(links) == len(shown) > 0
    for link, table in zip(links, shown.values(), strict=True):
        response = admin.get(link)
        assert response["Content-Type"] == "text/csv; charset=utf-8"
        first, last = query.replace("first=", "").split("&last=")
        assert f"_{table.id}_{first}_{last}.csv" in response["Content-Disposition"]
        records = list(csv.reader(io.StringIO(file_of(response), newline="")))
        if table.id == "collections":  # shown by pages, in a file whole
            assert len(records) > len(table.rows) == 101
            records = records[:101]
        assert len(records) == len(table.rows)
        assert len(records[0]) == len(table.rows[0])
        for record, row in zip(records[1:], table.rows[1:], strict=True):
            for key, value, cell in zip(records[0], record, row, strict=True):
                assert matches(cell, key, value), (table.id, cell, value)


def test_overview_shows_each_tier_with_who_waits(admin: Client) -> None:
    page = text_of(admin, f"/?{HOURLY}")
    assert 'aria-label="Tier gold"' in page
    assert 'aria-label="Tier silver"' in page
    assert "GPUs in 1 pod" in page  # of vision, waits for gold
    assert tables_of(page)["tiers"].rows[1][0].text == "gold"


def test_tiers_are_never_summed_into_one_line(admin: Client) -> None:
    for table in ("tiers", "teams"):
        rows = tables_of(text_of(admin, f"/?{HOURLY}"))[table].rows
        assert "Total" not in [row[0].text for row in rows]


def test_the_ledger_of_every_table_adds_up(admin: Client) -> None:
    text = admin.get(f"/?{HOURLY}&format=csv&table=tiers").content.decode()
    for row in csv.DictReader(io.StringIO(text)):
        held = ("busy", "underused", "idle", "not_running", "unmeasured")
        parts = sum(Decimal(row[f"{name}_gpu_hours"]) for name in held)
        assert parts == Decimal(row["allocated_gpu_hours"])
        free = Decimal(row["unallocated_gpu_hours"]) + Decimal(row["unhealthy_gpu_hours"])
        assert parts + free == Decimal(row["capacity_gpu_hours"])


def test_the_teams_of_a_tier_sum_to_what_was_allocated_on_it(admin: Client) -> None:
    tiers = admin.get(f"/?{HOURLY}&format=csv&table=tiers").content.decode()
    gold = next(csv.DictReader(io.StringIO(tiers)))
    teams = admin.get(f"/tiers/gold/?{HOURLY}&format=csv&table=teams").content.decode()
    total = list(csv.DictReader(io.StringIO(teams)))[-1]
    assert total["team"] == "Total"
    for key in ("allocated_gpu_hours", "busy_gpu_hours", "utilization_ratio"):
        assert total[key] == gold[key]


@pytest.mark.parametrize("path", PAGES)
def test_an_outage_looks_like_an_outage(path: str, admin: Client) -> None:
    page = text_of(admin, f"{path}?{HOURLY}")
    assert "1 hour of this window could not be collected:" in page
    assert "Sat 25 Oct 2025 02:00 – 03:00" in page
    assert "1 hour of this window is missing:" in page
    assert "Sat 25 Oct 2025 03:00 – 04:00" in page
    assert 'href="/health/data/?first=2025-10-25&amp;last=2025-10-27"' in page


def test_hours_that_were_not_collected_are_lines_without_numbers(admin: Client) -> None:
    rows = tables_of(text_of(admin, f"/tiers/gold/?{HOURLY}"))["ledger"].rows[1:-1]
    assert len(rows) == 73
    assert [cell.text for cell in rows[2][:3]] == ["Sat 25 Oct 02:00 CEST", "–", "–"]
    assert rows[2][-1].text == "1"
    assert [row[0].text for row in rows[26:28]] == ["Sun 26 Oct 02:00 CEST", "Sun 26 Oct 02:00 CET"]


def test_a_window_without_facts_says_why_and_breaks_nothing(admin: Client) -> None:
    for path in PAGES:
        text_of(admin, f"{path}?first=2025-09-01&last=2025-09-02")
    page = text_of(admin, "/tiers/gold/?first=2025-09-01&last=2025-09-02")
    assert "Nothing to draw: there is no GPU capacity or use in this window." in page


@pytest.mark.parametrize("path", PAGES)
def test_nonsense_in_the_address_is_said_and_breaks_nothing(path: str, admin: Client) -> None:
    page = text_of(admin, f"{path}?window=%00bogus&page=-7&state=odd&namespace=%F0%9F%98%80")
    assert "There is no window" in page
    assert "The last 7 days are shown." in page


@pytest.mark.parametrize(
    "address",
    ["/workloads/west/vision/Job/train/?pods=garbage", "/health/data/?cursor=garbage"],
)
def test_a_broken_cursor_is_said_and_breaks_nothing(address: str, admin: Client) -> None:
    assert "points into a list that is no longer there" in text_of(admin, address)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("/tiers/none/", "There is no tier “none”."),
        ("/teams/none/", "There is no team “none”."),
        ("/pods/west/none/", "There is no such pod, or you may not see it."),
        ("/nothing-here/", "There is no such page"),
        (
            f"/?{HOURLY}&format=csv&table=x",
            "This page has no table “x”; it has: tiers, teams, ledger-1",
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
        links = [html.unescape(link) for link in re.findall(r'<a [^>]*href="(/[^"]*)"', page)]
        assert links
        for link in links:
            assert "first=2025-10-25&last=2025-10-27" in link or "window=" in link, link


def test_a_cluster_can_be_picked_and_stays_picked(admin: Client) -> None:
    every = tables_of(text_of(admin, f"/?{HOURLY}"))["tiers"].rows
    east = text_of(admin, f"/?{HOURLY}&cluster=east")
    rows = tables_of(east)["tiers"].rows
    assert every[2][1].text != rows[2][1].text  # silver has nodes on both clusters
    assert "/tiers/silver/?first=2025-10-25&amp;last=2025-10-27&amp;cluster=east" in east
    assert '<option value="east" selected>' in east


def test_htmx_gets_the_results_alone_and_caches_keep_both_apart(admin: Client) -> None:
    response = admin.get(f"/?{HOURLY}", headers={"HX-Request": "true"})
    assert "<html" not in response.content.decode()
    assert "HX-Request" in response["Vary"]
    assert "no-store" in response["Cache-Control"]
    restored = {"HX-Request": "true", "HX-History-Restore-Request": "true"}
    assert "<html" in admin.get(f"/?{HOURLY}", headers=restored).content.decode()


def test_namespaces_narrow_the_workloads(admin: Client) -> None:
    rows = tables_of(text_of(admin, f"/teams/vision/?{HOURLY}&namespace=vision-prod"))
    assert [row[2].text for row in rows["workloads"].rows[1:]] == ["Deployment/serve"]
    every = tables_of(text_of(admin, f"/teams/vision/?{HOURLY}"))["workloads"].rows
    assert every[-1][0].text == "Total"


def test_workloads_come_in_pages_and_the_total_is_over_all(admin: Client) -> None:
    whole = tables_of(text_of(admin, f"/teams/vision/?{HOURLY}"))["workloads"].rows
    seen = []
    for number in range(1, len(whole) - 1):
        address = f"/teams/vision/?{HOURLY}&per_page=1&page={number}"
        page = tables_of(text_of(admin, address))["workloads"].rows
        assert [c.text for c in page[-1]] == [c.text for c in whole[-1]]
        seen += page[1:-1]
    assert [[c.text for c in row] for row in seen] == [[c.text for c in row] for row in whole[1:-1]]


def test_a_pod_page_tells_its_life(admin: Client) -> None:
    page = text_of(admin, f"/pods/west/uid-train-2/?{HOURLY}")
    life = tables_of(page)["life"].rows
    assert [row[0].text for row in life[1:]] == ["waiting"]
    assert "not bound" in page
    ran = tables_of(text_of(admin, f"/pods/west/uid-train-0/?{HOURLY}"))["life"].rows
    assert [row[0].text for row in ran[1:]] == ["waiting", "starting", "running"]


def test_hostile_names_are_shown_as_text(portal: Portal, admin: Client) -> None:
    name = '<script>alert(1)</script>"&'
    workload = make_workload(portal.clusters[0], "vision", name)
    pod = make_pod(workload, name, created_at=portal.pods[0].created_at, uid="a/b", end_reason=name)
    assert pod.uid == "a/b"
    address = reverse("web:workload", args=["west", "vision", "Job", name.replace("/", "")])
    assert admin.get(address).status_code == 404
    workload.name = name.replace("/", "")
    workload.save()
    page = text_of(admin, f"{address}?{HOURLY}")
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


def test_figures_are_data_and_no_script_runs_inline(admin: Client) -> None:
    response = admin.get(f"/tiers/gold/?{HOURLY}")
    page = response.content.decode()
    found = re.findall(r'<script id="ledger-figure" type="application/json">(.*?)</script>', page)
    assert json.loads(found[0])["layout"]["barmode"] == "stack"
    others = re.findall(r"<script(?![^>]*(?:src=|application/json))", page)
    assert others == []
    assert "<style" not in page
    assert "script-src 'self'" in response["Content-Security-Policy"]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_landmarks_one_heading_and_named_tables(path: str, admin: Client) -> None:
    page = text_of(admin, f"{path}?{HOURLY}")
    assert page.count("<main") == page.count("<h1") == 1
    assert 'href="#main"' in page
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids)), [i for i in ids if ids.count(i) > 1]
    for label in re.findall(r'aria-labelledby="([^"]+)"', page):
        assert label in ids


def test_the_calendar_of_data_health_marks_each_hour(admin: Client) -> None:
    page = text_of(admin, f"/health/data/?{HOURLY}")
    marks = re.findall(r'<td><span class="mark mark-(\w+)"[^>]*title="([^"]+)"', page)
    assert len(marks) == 73
    states = {title.split(": ")[0]: state for state, title in marks}
    assert states["Sat 25 Oct 02:00 CEST"] == "failed"
    assert states["Sat 25 Oct 03:00 CEST"] == "missing"
    assert states["Sun 26 Oct 02:00 CET"] == "complete"


def test_data_health_narrows_to_states(admin: Client) -> None:
    rows = tables_of(text_of(admin, f"/health/data/?{HOURLY}&state=failed"))["collections"].rows
    assert {row[2].text for row in rows[1:]} == {"failed"}
    assert len(rows) == 3
    assert "answered 503" in rows[1][-1].text


def test_collections_are_paged_without_losing_a_row(admin: Client) -> None:
    address, seen = f"/health/data/?{DAILY}", []
    for _ in range(10):
        page = text_of(admin, address)
        seen += [(r[0].text, r[1].text) for r in tables_of(page)["collections"].rows[1:]]
        found = re.search(r'href="([^"]+)#collections" rel="next"', page)
        if found is None:
            break
        address = html.unescape(found[1])
    assert len(seen) == len(set(seen)) == 2 * 97 - 2


# ---------------------------------------------------------------- what is not known

UNCOLLECTED = "first=2025-10-21&last=2025-10-22"
NOT_KEPT = "These hours were not collected or are no longer kept."


def test_a_pod_whose_hours_are_not_known_is_not_said_to_have_held_nothing(admin: Client) -> None:
    page = text_of(admin, f"/pods/west/uid-train-0/?{UNCOLLECTED}")
    assert NOT_KEPT in page
    assert "held no GPU" not in page
    waiting = text_of(admin, f"/pods/west/uid-train-2/?{UNCOLLECTED}")
    assert "It held no GPU in this window" in waiting
    assert NOT_KEPT not in waiting


def test_what_pods_held_in_hours_not_known_is_a_dash_and_an_empty_cell(admin: Client) -> None:
    address = f"/workloads/west/vision/Job/train/?{UNCOLLECTED}"
    page = text_of(admin, address)
    assert NOT_KEPT in page
    assert "This workload held no GPU" not in page
    head, *rows = tables_of(page)["pods"].rows
    place = next(n for n, cell in enumerate(head) if cell.text.startswith("Allocated"))
    assert {row[0].text: row[place].text for row in rows} == {
        "train-0": "–",
        "train-1": "–",
        "train-2": "0.0",
    }
    held = {
        row["pod"]: (row["allocated_gpu_hours"], row["busy_gpu_hours"], row["coverage_ratio"])
        for row in records_of(admin, f"{address}&format=csv&table=pods")
    }
    assert held == {"train-0": ("", "", ""), "train-1": ("", "", ""), "train-2": ("0", "0", "")}


def test_a_pod_that_was_deleted_while_it_waited_waits_no_longer(
    portal: Portal, admin: Client
) -> None:
    created = datetime(2025, 10, 25, 6, tzinfo=UTC)
    work = make_workload(portal.clusters[0], "vision", "gave-up")
    make_pod(work, "gave-up", created_at=created, ended_at=created + timedelta(minutes=5))
    life = tables_of(text_of(admin, f"/pods/west/uid-gave-up/?{HOURLY}"))["life"].rows
    assert [cell.text for cell in life[1]][:4] == [
        "waiting",
        "2025-10-25 08:00:00",
        "2025-10-25 08:05:00",
        "5 min 0 s",
    ]
    address = f"/workloads/west/vision/Job/gave-up/?{HOURLY}&format=csv&table=pods"
    (row,) = records_of(admin, address)
    assert row["wait_seconds"] == "300"


# ---------------------------------------------------------------- files


def test_a_file_of_a_paged_table_has_all_its_rows_and_a_total_that_fits(admin: Client) -> None:
    address = f"/teams/vision/?{HOURLY}&per_page=1&page=2"
    (link,) = [a for a in table_links(text_of(admin, address)) if "table=workloads" in a]
    *rows, total = records_of(admin, link)
    assert len(rows) == 3
    assert total["cluster"] == "Total"
    for column in ("allocated_gpu_hours", "busy_gpu_hours", "not_busy_gpu_hours"):
        assert sum(Decimal(row[column]) for row in rows) == Decimal(total[column])


def test_a_file_of_pods_has_those_of_all_pages(portal: Portal, admin: Client) -> None:
    work = make_workload(portal.clusters[0], "vision", "sweep")
    created = datetime(2025, 10, 25, 6, tzinfo=UTC)
    for n in range(105):
        make_pod(work, f"sweep-{n}", created_at=created + timedelta(seconds=n))
    address = f"/workloads/west/vision/Job/sweep/?{HOURLY}"
    page = text_of(admin, address)
    assert len(tables_of(page)["pods"].rows) == 101
    (more,) = re.findall(r'href="([^"]+)#pods" rel="next"', page)
    for start in (address, html.unescape(more)):
        (link,) = [a for a in table_links(text_of(admin, start)) if "table=pods" in a]
        pods = [row["pod"] for row in records_of(admin, link)]
        assert pods == [f"sweep-{n}" for n in reversed(range(105))]


def test_a_file_of_collected_hours_has_those_of_all_pages(admin: Client) -> None:
    rows = records_of(admin, f"/health/data/?{DAILY}&format=csv&table=collections")
    assert len({(row["hour"], row["cluster"]) for row in rows}) == len(rows) == 2 * 97 - 2
    failed = records_of(admin, f"/health/data/?{DAILY}&state=failed&format=csv&table=collections")
    assert {row["state"] for row in failed} == {"failed"}


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        (
            "/teams/vision/?start=2025-06-01T00:00:00Z&end=2025-10-27T05:00:00Z&table=workloads",
            "midnight in Europe/Berlin",
        ),
        ("/teams/vision/?first=2024-01-01&last=2025-10-27&table=tiers", "400 days at most"),
        ("/?window=fortnight&table=tiers", "There is no window"),
        ("/?cluster=north&table=tiers", "There is no cluster"),
    ],
    ids=["whole days", "too long", "no such window", "no such cluster"],
)
def test_a_file_that_cannot_be_had_says_why_instead_of_holding_something_else(
    address: str, reason: str, admin: Client
) -> None:
    response = admin.get(f"{address}&format=csv")
    assert response.status_code == 400
    assert response["Content-Type"] == "text/plain; charset=utf-8"
    assert reason in response.content.decode()


# ---------------------------------------------------------------- odd addresses


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
    around = text_of(admin, "/health/data/?first=2011-12-29&last=2011-12-31")
    assert "Thu 29 Dec" in around
    assert "Fri 30 Dec" not in around.replace("Fri 30 Dec 2011", "")


def test_a_window_of_one_cluster_counts_what_waits_there(admin: Client) -> None:
    west, east = (
        tables_of(text_of(admin, f"/?{HOURLY}&cluster={name}"))["tiers"].rows
        for name in ("west", "east")
    )
    place = next(n for n, cell in enumerate(west[0]) if "pods" in cell.text)
    assert [row[place].text for row in west[1:]] == ["1", "0"]
    assert [row[place].text for row in east[1:]] == ["0", "0"]
