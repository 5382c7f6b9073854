"""`quotas` and `budgets`: what is set, how full it is, and for whom to see."""

import csv
import io
import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.clusters.models import ObservedObject, WatchCoverage
from apps.operations.selectors.portal_figures import quota_figures
from apps.quotas.models import Budget
from apps.usage.domain.columns import utc_text
from tests.api.conftest import Read, client_of
from tests.factories import BEGINNING, Portal, make_team
from tests.quotas.quota_rows import see_quota

QUOTA = (
    *("cluster", "namespace", "source", "name", "key", "tiers", "team", "unit", "hard", "used"),
    *("held", "pending", "suppressed", "saturation_ratio", "effective", "exhausted_at"),
    *("as_of", "stale", "from_series"),
)
BUDGET = (
    *("team", "period_start", "period_end", "unit", "allowance", "used", "burn_rate"),
    *("burn_rate_1d", "burn_rate_7d", "exhausted_at", "exhausted_at_early", "exhausted_at_late"),
    *("as_of", "known_until", "coverage_ratio", "unpriced_gpu_hours"),
)


@pytest.fixture
def limited(portal: Portal) -> Portal:
    """Return a portal where vision has a quota that counts and speech one that does not."""
    west, _ = portal.clusters
    since = timezone.now() - timedelta(days=3)
    see_quota(west, "vision", 8.0, used=6.0, since=since)
    see_quota(west, "speech", 2.0, key="nvidia.com/gpu", name="bare", since=since)
    Budget.objects.create(
        team=portal.vision, period="month", gpu_hours=1000.0, valid_from=BEGINNING
    )
    return portal


def test_a_row_has_the_fields_of_the_contract(limited: Portal, read: Read) -> None:
    rows = {row["namespace"]: row for row in read("quotas")["results"]}
    vision, speech = rows["vision"], rows["speech"]
    assert set(QUOTA) <= vision.keys()
    assert (vision["source"], vision["hard"], vision["effective"]) == ("ResourceQuota", 8.0, True)
    assert vision["team"] == "vision"
    assert set(vision["tiers"]) == {"gold", "silver"}
    assert speech["effective"] is False
    assert speech["used"] is None
    assert speech["saturation_ratio"] is None
    assert "requests.nvidia.com/gpu" in speech["fix"] + speech["finding"]


def test_a_row_that_nobody_vouches_for_now_says_as_of_when_it_is(
    limited: Portal, read: Read
) -> None:
    west, _ = limited.clusters
    rows = read("quotas")["results"]
    seen = ObservedObject.objects.order_by("-changed_at")[0].changed_at
    assert {(row["as_of"], row["stale"]) for row in rows} == {(utc_text(seen), True)}
    WatchCoverage.objects.create(cluster=west, start=BEGINNING, end=timezone.now())
    assert {row["stale"] for row in read("quotas")["results"]} == {False}


@pytest.mark.parametrize(
    ("params", "namespaces"),
    [
        ({}, ["speech", "vision"]),
        ({"team": "vision"}, ["vision"]),
        ({"namespace": "speech"}, ["speech"]),
        ({"effective": "true"}, ["vision"]),
        ({"effective": "false"}, ["speech"]),
        ({"source": "ClusterQueue"}, []),
        ({"order": "fullest"}, ["vision", "speech"]),
        ({"cluster": "east"}, []),
    ],
)
def test_filters_narrow_the_quotas(
    limited: Portal, read: Read, params: dict[str, str], namespaces: list[str]
) -> None:
    assert [row["namespace"] for row in read("quotas", params)["results"]] == namespaces


def test_others_do_not_see_the_quotas_of_a_team(limited: Portal, read: Read) -> None:
    assert [r["namespace"] for r in read("quotas", user=limited.ada)["results"]] == ["vision"]
    assert [r["namespace"] for r in read("quotas", user=limited.dan)["results"]] == ["speech"]


def test_a_file_has_the_rows_of_the_list(limited: Portal, read: Read) -> None:
    response: Any = client_of(limited.cleo).get("/api/v1/quotas", {"format": "csv"})
    text = b"".join(response.streaming_content).decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["namespace"] for row in rows] == ["speech", "vision"]
    assert rows[1]["tiers"] == "gold silver"


def test_budgets_have_the_fields_of_the_contract(limited: Portal, read: Read) -> None:
    (row,) = read("budgets")["results"]
    assert set(BUDGET) <= row.keys()
    assert (row["team"], row["unit"], row["allowance"]) == ("vision", "gpu_hours", 1000.0)
    assert read("budgets", {"team": "speech"})["results"] == []


def test_budgets_in_money_are_for_who_sees_the_team(limited: Portal, read: Read) -> None:
    Budget.objects.create(
        team=limited.vision, period="month", money="20000", currency="USD", valid_from=BEGINNING
    )
    rows = read("budgets", user=limited.ada)["results"]
    assert [(row["unit"], row["allowance"]) for row in rows] == [
        ("USD", 20000.0),
        ("gpu_hours", 1000.0),
    ]
    assert [row["unit"] for row in read("budgets", user=limited.dan)["results"]] == ["gpu_hours"]


def test_series_of_quotas_are_what_the_api_says(limited: Portal, read: Read) -> None:
    west, _ = limited.clusters
    WatchCoverage.objects.create(cluster=west, start=BEGINNING, end=timezone.now())
    found = {name: dict(samples) for name, samples in quota_figures(timezone.now()).items()}
    quotas = [row for row in read("quotas")["results"] if row["effective"]]
    assert quotas
    for row in quotas:
        of = (row["team"], row["key"].removeprefix("requests."))
        assert found["gpuportal_team_quota_limit"][of] == row["hard"]
        assert found["gpuportal_team_quota_used"][of] == row["used"]
        assert found["gpuportal_team_quota_usage_ratio"][of] == row["saturation_ratio"]
    assert {len(found[f"gpuportal_team_quota_{one}"]) for one in ("limit", "used")} == {len(quotas)}


def test_the_range_of_an_end_is_read_of_the_budgets_of_a_page_alone(limited: Portal) -> None:
    teams = [limited.vision, *(make_team(f"team-{number}") for number in range(3))]
    for team in teams[1:]:
        Budget.objects.create(team=team, period="month", gpu_hours=1e9, valid_from=BEGINNING)
    client = client_of(limited.cleo)
    with CaptureQueriesContext(connection) as queries:
        page = client.get("/api/v1/budgets", {"page_size": 2}).json()
    assert [row["team"] for row in page["results"]] == ["team-0", "team-1"]
    assert page["next"]
    # Once summed for all of them, and once day by day for the two that are shown.
    days = [one["sql"] for one in queries.captured_queries if "usage_teamday" in one["sql"]]
    of_teams = [re.findall(r'"team_id" IN \(([\d, ]+)\)', sql) for sql in days]
    assert not any(of_teams[:-1])
    (shown,) = of_teams[-1]
    assert set(map(int, shown.split(","))) == {team.pk for team in teams[1:3]}


@pytest.mark.parametrize(("path", "most"), [("quotas", 24), ("budgets", 30)])
def test_a_list_takes_a_fixed_number_of_queries(limited: Portal, path: str, most: int) -> None:
    client = client_of(limited.cleo)
    counts = []
    for more in range(2):
        for number in range(more * 20):
            see_quota(limited.clusters[0], f"vision-{number}", 1.0, name=f"q{number}")
        with CaptureQueriesContext(connection) as queries:
            assert client.get(f"/api/v1/{path}").status_code == 200
        counts.append(len(queries))
    assert counts[0] == counts[1] <= most
