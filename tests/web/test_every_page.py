"""What holds for all pages."""

import json
import re

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from pytest_django import DjangoAssertNumQueries

from tests.factories import Portal, make_cluster, make_pod, make_team, make_tier, make_workload
from tests.web.conftest import DAILY, HOURLY, LOOKED
from tests.web.pages import PAGES, STANDING, text_of


@pytest.mark.parametrize(
    ("path", "most", "query"),
    [
        *((*page, query) for page in PAGES.items() for query in (HOURLY, DAILY)),
        *(pytest.param(*page, "window=7d", marks=pytest.mark.exhaustive) for page in PAGES.items()),
        *((*page, DAILY) for page in STANDING.items()),
    ],
)
def test_a_page_needs_few_queries_and_has_landmarks_one_heading_and_named_tables(
    path: str,
    most: int,
    query: str,
    admin: Client,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    with django_assert_max_num_queries(most):
        page = text_of(admin, f"{path}?{query}")
    assert page.count("<main") == page.count("<h1") == 1
    assert 'href="#main"' in page
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids)), [i for i in ids if ids.count(i) > 1]
    assert set(re.findall(r'aria-labelledby="([^"]+)"', page)) <= set(ids)


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/capacity/tiers/", "/capacity/tiers/gold/", "/capacity/fairness/"),
        *("/capacity/teams/", "/capacity/teams/vision/", "/capacity/gpus/", "/workloads/"),
        *("/pending/", "/quotas/", "/costs/", "/costs/waste/", "/admin/data-quality/"),
    ],
)
def test_more_rows_need_no_more_queries(path: str, portal: Portal, admin: Client) -> None:
    _add(1, 2)
    with CaptureQueriesContext(connection) as before:
        text_of(admin, f"{path}?{HOURLY}")
    _add(2, 9)
    cache.clear()  # what was remembered would hide how many queries it takes
    with CaptureQueriesContext(connection) as after:
        text_of(admin, f"{path}?{HOURLY}")
    assert len(after) == len(before)


def _add(start: int, end: int) -> None:
    """Make teams, tiers and clusters with a pod that waits: of each one for a number."""
    for n in range(start, end):
        make_team(f"team-{n}", f"space-{n}")
        make_tier(f"tier-{n}", position=10 + n)
        workload = make_workload(make_cluster(f"cluster-{n}"), f"space-{n}", "wait")
        make_pod(workload, f"wait-{n}", created_at=LOOKED)


@pytest.mark.parametrize("path", PAGES)
def test_an_outage_looks_like_an_outage(path: str, admin: Client) -> None:
    page = text_of(admin, f"{path}?{HOURLY}")
    assert "1 hour of this window could not be collected:" in page
    assert "25 Oct 2025 02:00 – 03:00" in page
    assert "1 hour of this window is missing:" in page
    assert "25 Oct 2025 03:00 – 04:00" in page
    assert 'href="/admin/data-quality/?first=2025-10-25&amp;last=2025-10-27"' in page


def test_a_window_without_facts_says_why_and_breaks_nothing(admin: Client) -> None:
    for path in PAGES:
        text_of(admin, f"{path}?first=2025-09-01&last=2025-09-02")
    page = text_of(admin, "/capacity/tiers/gold/?first=2025-09-01&last=2025-09-02")
    assert "Nothing to draw: there is no GPU capacity or use in this window." in page


def test_htmx_gets_the_results_alone_and_caches_keep_both_apart(admin: Client) -> None:
    response = admin.get(f"/?{HOURLY}", headers={"HX-Request": "true"})
    assert "<html" not in response.content.decode()
    assert "HX-Request" in response["Vary"]
    assert "no-store" in response["Cache-Control"]
    restored = {"HX-Request": "true", "HX-History-Restore-Request": "true"}
    assert "<html" in admin.get(f"/?{HOURLY}", headers=restored).content.decode()


def test_figures_are_data_and_no_script_runs_inline(admin: Client) -> None:
    response = admin.get(f"/capacity/tiers/gold/?{HOURLY}")
    page = response.content.decode()
    found = re.findall(r'<script id="ledger-figure" type="application/json">(.*?)</script>', page)
    assert json.loads(found[0])["layout"]["barmode"] == "stack"
    others = re.findall(r"<script(?![^>]*(?:src=|application/json))", page)
    assert others == []
    assert "<style" not in page
    assert "script-src 'self'" in response["Content-Security-Policy"]


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
