"""The overview: every tier beside the others."""

import csv
import io
from decimal import Decimal

from django.test import Client

from tests.web.conftest import HOURLY
from tests.web.pages import text_of
from tests.web.shown import tables_of


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


def test_a_cluster_can_be_picked_and_stays_picked(admin: Client) -> None:
    every = tables_of(text_of(admin, f"/?{HOURLY}"))["tiers"].rows
    east = text_of(admin, f"/?{HOURLY}&cluster=east")
    rows = tables_of(east)["tiers"].rows
    assert every[2][1].text != rows[2][1].text  # silver has nodes on both clusters
    assert "/tiers/silver/?first=2025-10-25&amp;last=2025-10-27&amp;cluster=east" in east
    assert '<option value="east" selected>' in east


def test_a_window_of_one_cluster_counts_what_waits_there(admin: Client) -> None:
    west, east = (
        tables_of(text_of(admin, f"/?{HOURLY}&cluster={name}"))["tiers"].rows
        for name in ("west", "east")
    )
    place = next(n for n, cell in enumerate(west[0]) if "pods" in cell.text)
    assert [row[place].text for row in west[1:]] == ["1", "0"]
    assert [row[place].text for row in east[1:]] == ["0", "0"]
