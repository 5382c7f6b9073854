"""Tables as files: what is shown, and all of it."""

import csv
import html
import io
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.test import Client

from tests.factories import Portal, make_pod, make_workload
from tests.thinned import thinned
from tests.web.conftest import DAILY, HOURLY
from tests.web.pages import PAGES, file_of, records_of, table_links, text_of
from tests.web.shown import ShownCell, tables_of


def matches(cell: ShownCell, key: str, value: str) -> bool:
    """Say whether a shown cell stands for an exact value: by its title, else by its text.

    What still lasts is a moment longer in the file.
    """
    if value == "":
        return cell.text in {"–", ""}
    full = cell.title.split(" ")[0] if cell.title else cell.text
    if key.endswith("_seconds") and full[0].isdigit():
        return float(value) == pytest.approx(float(full), abs=60)
    # A text that ends with a time, such as the source of a price, is no time.
    if re.fullmatch(
        r"\d{4}-\d\d-\d\dT[\d:.]+Z", full
    ):  # a page has UTC on hover, a file the local offset
        return datetime.fromisoformat(full) == datetime.fromisoformat(value)
    return full == value


# Waste has tables where something is priced: see the same test of costs. This portal has no
# inference services: the file of those is held to their rows in tests of serving.
_QUALITY = "/admin/data-quality/"
_WITHOUT_TABLES = ("/", "/costs/waste/", "/capacity/serving/", _QUALITY)
_WITH_TABLES = [
    *(f"{path}?" for path in PAGES if path not in _WITHOUT_TABLES),
    *(f"{_QUALITY}?tab={tab}&" for tab in ("calendar", "exporters", "tiers")),
]


@pytest.mark.parametrize(("address", "query"), thinned(_WITH_TABLES, [HOURLY, DAILY]))
def test_every_table_downloads_as_exactly_what_is_shown(
    address: str, query: str, admin: Client
) -> None:
    page = text_of(admin, f"{address}{query}")
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
            assert len(records) > len(table.rows) == 26
            records = records[:26]
        if table.id == "shares":  # under a picture: its first rows
            records = [row[: len(table.rows[0])] for row in records[: len(table.rows)]]
        if table.id == "ledger" or table.id.startswith("gpus-"):
            # Under a picture: its last rows, and no GPU-hours.
            records = [row[: len(table.rows[0])] for row in records]
            records = [records[0], *records[1 - len(table.rows) :]]
        if table.id in {"utilization-hours", "memory-hours"}:  # under a picture: its last rows
            assert len(records) >= len(table.rows)
            records = [records[0], *records[1 - len(table.rows) :]]
        assert len(records) == len(table.rows)
        assert len(records[0]) == len(table.rows[0])
        for record, row in zip(records[1:], table.rows[1:], strict=True):
            for key, value, cell in zip(records[0], record, row, strict=True):
                assert matches(cell, key, value), (table.id, cell, value)


def test_a_file_of_a_paged_table_has_all_its_rows_and_a_total_that_fits(admin: Client) -> None:
    address = f"/capacity/teams/vision/?tab=workloads&{HOURLY}&per_page=1&page=2"
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
    address = f"/workloads/west/vision/Job/sweep/?tab=pods&{HOURLY}"
    page = text_of(admin, address)
    assert len(tables_of(page)["pods"].rows) == 26
    (more,) = re.findall(r'href="([^"]+)#pods" rel="next"', page)
    for start in (address, html.unescape(more)):
        (link,) = [a for a in table_links(text_of(admin, start)) if "table=pods" in a]
        pods = [row["pod"] for row in records_of(admin, link)]
        assert pods == [f"sweep-{n}" for n in reversed(range(105))]


def test_a_file_of_collected_hours_has_those_of_all_pages(admin: Client) -> None:
    rows = records_of(admin, f"/admin/data-quality/?{DAILY}&format=csv&table=collections")
    assert len({(row["hour"], row["cluster"]) for row in rows}) == len(rows) == 2 * 97 - 2
    failed = records_of(
        admin, f"/admin/data-quality/?{DAILY}&state=failed&format=csv&table=collections"
    )
    assert {row["state"] for row in failed} == {"failed"}


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        (
            "/capacity/teams/vision/?start=2025-06-01T00:00:00Z&end=2025-10-27T05:00:00Z&table=workloads",
            "midnight in Europe/Berlin",
        ),
        (
            "/capacity/teams/vision/?first=2024-01-01&last=2025-10-27&table=tiers",
            "400 days at most",
        ),
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
