"""`usage`: the ledger's columns, windows, groups and pages over HTTP."""

import csv
import io
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.window import Window, day_start
from apps.usage import selectors
from apps.usage.domain.amounts import hours
from apps.usage.domain.columns import flat
from apps.usage.domain.usage_query import Grouping, TimeStep, UsageQuery
from tests.api.conftest import AFTER, FIRST, Read, client_of
from tests.factories import Portal, make_gpus, make_model

BOTH: dict[str, Any] = {"start": "2026-03-28", "end": "2026-03-30"}
COLUMNS = [
    *("capacity_gpu_hours", "unhealthy_gpu_hours", "unallocated_gpu_hours"),
    *("stranded_gpu_hours", "allocated_gpu_hours", "not_running_gpu_hours"),
    *("unmeasured_gpu_hours", "idle_gpu_hours", "underused_gpu_hours", "busy_gpu_hours"),
    *("burst_gpu_hours", "unattributed_gpu_hours"),
    *("allocation_ratio", "utilization_ratio", "coverage_ratio", "grades"),
    *("effective_utilization_ratio", "energy_kwh", "memory_peak_mib"),
    *("sm_active_ratio", "sm_measured_gpu_hours"),
    *("tensor_active_ratio", "tensor_measured_gpu_hours"),
    *("memory_copy_ratio", "memory_copy_measured_gpu_hours"),
    *(
        "split_energy_kwh",
        "idle_energy_kwh",
        "carbon_g",
        "energy_without_factor_kwh",
        "hours_known",
        "planned_outage_gpu_hours",
    ),
]


def table(response: Any) -> list[dict[str, str]]:
    """Return a streamed CSV file as records."""
    text = b"".join(response.streaming_content).decode()
    assert text.endswith("\r\n")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_a_row_has_the_period_the_groups_and_the_ledger_in_this_order(read: Read) -> None:
    page = read("usage", BOTH | {"group_by": "tier,cluster"})
    assert list(page) == ["results", "next"]
    assert list(page["results"][0]) == ["period", "tier", "cluster", *COLUMNS]
    assert list(page["results"][0]["grades"]) == [
        "measured",
        "apportioned",
        "inferred",
        "unmeasured",
    ]


def test_amounts_are_gpu_hours_and_equal_the_selector(portal: Portal, read: Read) -> None:
    window = Window(day_start(FIRST, portal.zone), day_start(AFTER, portal.zone))
    rows = selectors.usage_rows(
        UsageQuery(window, TimeStep.DAY, [Grouping.TIER]), visibility=EVERYTHING
    )
    results = read("usage", BOTH | {"group_by": "tier"})["results"]
    assert len(results) == len(rows) == 4
    for result, row in zip(results, rows, strict=True):
        a = row.amounts
        assert result["period"] == row.period.isoformat() if row.period else None
        assert result["capacity_gpu_hours"] == hours(a.capacity or 0)
        assert result["busy_gpu_hours"] == hours(a.busy)
        assert result["utilization_ratio"] == a.utilization_ratio
        assert result["grades"] == a.grades


def test_without_groups_there_is_one_row_for_each_period(read: Read) -> None:
    results = read("usage", BOTH)["results"]
    assert [row["period"] for row in results] == [
        "2026-03-28T00:00:00+01:00",
        "2026-03-29T00:00:00+01:00",
    ]
    assert [row["allocated_gpu_hours"] for row in results] == [11 * 24, 11 * 23]
    assert [row["capacity_gpu_hours"] for row in results] == [24 * 24, 24 * 23]


def test_a_total_has_a_null_period(read: Read) -> None:
    (row,) = read("usage", BOTH | {"interval": "total"})["results"]
    assert row["period"] is None


def test_capacity_columns_are_null_where_a_team_is_named(read: Read) -> None:
    results = read("usage", BOTH | {"group_by": "team"})["results"]
    assert {row["capacity_gpu_hours"] for row in results} == {None}
    assert {row["allocation_ratio"] for row in results} == {None}


@pytest.mark.parametrize(
    ("start", "end", "allocated"),
    [
        ("2026-03-28", "2026-03-29", 11 * 24),
        ("2026-03-29", "2026-03-30", 11 * 23),
        ("2026-03-28T00:00:00+01:00", "2026-03-29T00:00:00+01:00", 11 * 24),
        ("2026-03-28T05:00:00Z", "2026-03-28T07:00:00Z", 22),
        # The plus sign of an offset that nobody escaped arrives as a blank.
        ("2026-03-28T05:00:00 01:00", "2026-03-28T06:00:00 01:00", 11),
    ],
)
def test_a_window_is_given_by_local_dates_or_times(
    read: Read, start: str, end: str, allocated: float
) -> None:
    (row,) = read("usage", {"start": start, "end": end, "interval": "total"})["results"]
    assert row["allocated_gpu_hours"] == allocated


@pytest.mark.parametrize(
    "params",
    [
        {"group_by": ["tier", "team"], "tier": ["gold", "silver"]},
        {"group_by": "tier,team", "tier": "gold,silver"},
        {"group_by": "tier, team", "tier": ["gold", "silver,gold"]},
    ],
    ids=["repeated", "commas", "both"],
)
def test_several_names_are_repeated_or_separated_by_commas(
    read: Read, params: dict[str, Any]
) -> None:
    results = read("usage", BOTH | {"interval": "total"} | params)["results"]
    assert [(row["tier"], row["team"]) for row in results] == [
        ("gold", "speech"),
        ("gold", "vision"),
        ("silver", "speech"),
        ("silver", "unassigned"),
        ("silver", "vision"),
    ]


def pages(client: Client, params: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    url: str | None = "/api/v1/usage"
    while url is not None:
        page = client.get(url, params).json()
        yield page["results"]
        url, params = page["next"], {}


def test_following_next_gives_every_row_once(portal: Portal, read: Read) -> None:
    asked = BOTH | {"interval": "hour", "group_by": "team"}
    found = list(pages(client_of(portal.cleo), asked | {"page_size": "29"}))
    assert [len(page) for page in found] == [29, 29, 29, 29, 25]
    whole = read("usage", asked | {"page_size": 500})
    assert whole["next"] is None
    assert [row for page in found for row in page] == whole["results"]


def test_next_pins_a_default_window(portal: Portal) -> None:
    page = client_of(portal.cleo).get("/api/v1/usage", {"page_size": 1, **BOTH}).json()
    assert "start=2026-03-27T23%3A00%3A00%2B00%3A00" in page["next"]
    assert page["next"].startswith("http://testserver/api/v1/usage?cursor=")


def test_csv_is_the_same_rows_as_json(portal: Portal, read: Read) -> None:
    asked = BOTH | {"group_by": "tier,team", "interval": "day"}
    response = client_of(portal.cleo).get("/api/v1/usage", asked | {"format": "csv"})
    assert response.status_code == 200
    assert response["content-type"].startswith("text/csv")
    assert response["content-disposition"] == (
        'attachment; filename="gpuportal-usage-2026-03-28-to-2026-03-30.csv"'
    )
    rows = table(response)
    results = read("usage", asked)["results"]
    assert len(rows) == len(results) == 10
    for row, result in zip(rows, results, strict=True):
        expected = flat(result)
        assert list(row) == list(expected)
        assert row == {name: "" if v is None else str(v) for name, v in expected.items()}


def test_csv_of_nothing_is_a_header(portal: Portal) -> None:
    asked = {"start": "2025-01-01", "end": "2025-01-02", "format": "csv", "group_by": "node"}
    response = client_of(portal.cleo).get("/api/v1/usage", asked)
    header = b"".join(response.streaming_content).decode()  # type: ignore[attr-defined]
    assert header.startswith("period,node,capacity_gpu_hours,")
    assert header.count("\r\n") == 1


def test_a_name_that_looks_like_a_formula_stays_text_in_csv(portal: Portal) -> None:
    model = make_model()
    model.name = "=HYPERLINK(1)"
    model.save()
    response = client_of(portal.cleo).get(
        "/api/v1/usage", BOTH | {"group_by": "gpu_model", "format": "csv"}
    )
    assert "'=HYPERLINK(1)" in {row["gpu_model"] for row in table(response)}


def test_others_appear_as_sums_of_teams_only(portal: Portal, read: Read) -> None:
    asked = BOTH | {"interval": "total"}
    teams = read("usage", asked | {"group_by": "team"}, user=portal.dan)["results"]
    assert [row["team"] for row in teams] == ["speech", "unassigned", "vision"]
    detailed = read("usage", asked | {"group_by": "team,namespace"}, user=portal.dan)["results"]
    assert [(row["team"], row["namespace"]) for row in detailed] == [("speech", "speech")]
    hidden = read("usage", asked | {"namespace": "vision"}, user=portal.dan)
    assert hidden == {"results": [], "next": None}


def test_a_page_takes_a_known_number_of_queries(
    portal: Portal, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    make_gpus(portal.clusters[0], "west-9", portal.tiers[0])
    client = client_of(portal.ada)
    # Token, membership, report, names, days, day sums; whether the pending history is complete: 2;
    # tiers of claims; whether there are carbon factors.
    with django_assert_num_queries(10):
        client.get("/api/v1/usage", BOTH | {"group_by": "tier", "tier": "gold"})
