"""`tiers`, `teams`, `clusters`, `collections` and the index."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from apps.api.urls import LISTS
from apps.clusters.models import WatchCoverage
from tests.api.conftest import Read, client_of
from tests.factories import A100, Portal, make_tier, note_collection


def test_tiers_are_in_catalog_order_with_the_builtin_ones_last(portal: Portal, read: Read) -> None:
    make_tier("first", position=0, promise="Soon.", active=True)
    page = read("tiers")
    assert [row["name"] for row in page["results"]] == [
        "first",
        "gold",
        "silver",
        "undetermined",
        "unmatched",
    ]
    assert page["results"][0] == {
        "name": "first",
        "sharing": "exclusive",
        "resources": ["nvidia.com/gpu"],
        "device_classes": [],
        "node_selector": {"nvidia.com/gpu.product": A100},
        "promise": "Soon.",
        "allowed_teams": [],
        "builtin": False,
    }
    assert page["results"][-1]["sharing"] is None
    assert page["results"][-1]["builtin"] is True


@pytest.mark.parametrize(
    ("person", "seen"),
    [
        ("cleo", {"speech": ["speech"], "unassigned": [], "vision": ["vision", "vision-*"]}),
        ("ada", {"speech": None, "unassigned": None, "vision": ["vision", "vision-*"]}),
        ("dan", {"speech": ["speech"], "unassigned": None, "vision": None}),
    ],
)
def test_teams_show_their_namespaces_to_their_people(
    portal: Portal, read: Read, person: str, seen: dict[str, Any]
) -> None:
    results = read("teams", user=getattr(portal, person))["results"]
    assert {row["name"]: row["namespaces"] for row in results} == seen
    assert list(results[0]) == ["name", "cost_center", "leads", "namespaces", "builtin"]
    for row in results:
        hidden = seen[row["name"]] is None
        assert (row["leads"] is None, row["cost_center"] is None) == (hidden, hidden)
    vision = next(row for row in results if row["name"] == "vision")
    if seen["vision"]:
        assert (vision["leads"], vision["cost_center"]) == (["ada"], "CC-100")


def test_connections_of_clusters_are_for_admins(portal: Portal, read: Read) -> None:
    watched = datetime(2026, 3, 28, 12, tzinfo=UTC)
    WatchCoverage.objects.create(cluster=portal.clusters[0], start=watched, end=watched)
    east, west = read("clusters")["results"]
    assert west == {
        "name": "west",
        "prometheus_url": "http://west.example:9090",
        "scrape_interval_seconds": 30.0,
        "has_kubernetes_api": True,
        "watched_until": "2026-03-28T12:00:00Z",
    }
    assert (east["has_kubernetes_api"], east["watched_until"]) == (False, None)
    for person in (portal.ada, portal.finn):
        results = read("clusters", user=person)["results"]
        assert {row["prometheus_url"] for row in results} == {None}


@pytest.fixture
def troubled(portal: Portal) -> Portal:
    at = datetime(2026, 3, 30, 10, tzinfo=UTC)
    error = "Prometheus at http://secret:9090 answers 401: check bearer_token_env"
    note_collection(portal.clusters[0], at, "failed", error=error, attempts=3)
    note_collection(portal.clusters[1], at, "partial", coverage_ratio=0.5, samples=7)
    return portal


def test_collections_are_newest_first(troubled: Portal, read: Read) -> None:
    results = read("collections", {"page_size": 3})["results"]
    assert results[:2] == [
        {
            "cluster": "west",
            "hour": "2026-03-30T10:00:00Z",
            "state": "failed",
            "coverage_ratio": None,
            "samples": 0,
            "attempts": 3,
            "error": "Prometheus at http://secret:9090 answers 401: check bearer_token_env",
        },
        {
            "cluster": "east",
            "hour": "2026-03-30T10:00:00Z",
            "state": "partial",
            "coverage_ratio": 0.5,
            "samples": 7,
            "attempts": 1,
            "error": None,
        },
    ]
    assert results[2]["hour"] == "2026-03-29T21:00:00Z"


def test_everybody_sees_the_state_and_admins_the_error(troubled: Portal, read: Read) -> None:
    for person in (troubled.ada, troubled.finn):
        (row,) = read("collections", {"state": "failed"}, user=person)["results"]
        assert (row["state"], row["error"]) == ("failed", None)


@pytest.mark.parametrize(
    ("params", "count"),
    [
        ({}, 96),
        ({"cluster": "west"}, 48),
        ({"state": "failed,partial"}, 2),
        ({"start": "2026-03-30"}, 2),
        ({"end": "2026-03-29"}, 48),
        ({"start": "2026-03-28T05:00:00Z", "end": "2026-03-28T06:00:00Z"}, 2),
    ],
    ids=str,
)
def test_collections_can_be_narrowed(
    troubled: Portal, read: Read, params: dict[str, str], count: int
) -> None:
    assert len(read("collections", params | {"page_size": 500})["results"]) == count


@pytest.mark.parametrize("path", ["tiers", "teams", "clusters", "collections"])
def test_following_next_gives_every_row_once(troubled: Portal, read: Read, path: str) -> None:
    client = client_of(troubled.cleo)
    found = []
    url: str | None = f"/api/v1/{path}?page_size=1"
    while url is not None:
        page = client.get(url).json()
        found += page["results"]
        url = page["next"]
    assert found == read(path, {"page_size": 500})["results"]


@pytest.mark.parametrize(
    ("path", "queries"), [("tiers", 2), ("teams", 4), ("clusters", 2), ("collections", 3)]
)
def test_lists_take_a_known_number_of_queries(
    troubled: Portal, path: str, queries: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    client = client_of(troubled.cleo)
    # The token is one of them.
    with django_assert_num_queries(queries):
        client.get(f"/api/v1/{path}")


def test_the_index_names_every_list_and_the_day_of_the_portal(read: Read) -> None:
    index = read("")
    at = timezone.now().astimezone(ZoneInfo("Europe/Berlin"))
    # Midnight may pass between the answer and this line.
    days = {f"{at:%Y-%m-%d}", f"{at - timedelta(minutes=1):%Y-%m-%d}"}
    assert index.pop("today") in days
    assert index == {name: f"http://testserver/api/v1/{name}" for name in LISTS} | {
        "schema": "http://testserver/api/schema/",
        "time_zone": "Europe/Berlin",
    }


FILES = ("costs/focus",)
"""Addresses of LISTS that answer with a file alone."""
OFF = ("my/workloads",)
"""Those that are not there until a setting turns them on; held by their own tests."""


@pytest.mark.parametrize(
    "path",
    [
        # That each address with a slash is the same view, test_access holds.
        path if path == "tiers" else pytest.param(path, marks=pytest.mark.exhaustive)
        for path in LISTS
        if path not in (*FILES, *OFF)
    ],
)
def test_a_slash_at_the_end_is_the_same_list(read: Read, path: str) -> None:
    assert read(f"{path}/") == read(path)


@pytest.mark.parametrize("path", FILES)
def test_a_slash_at_the_end_is_the_same_file(portal: Portal, path: str) -> None:
    plain, slashed = (client_of(portal.cleo).get(f"/api/v1/{p}") for p in (path, f"{path}/"))
    assert plain.status_code == slashed.status_code == 200
    assert plain.getvalue() == slashed.getvalue()
