"""The page of a tier."""

import csv
import io
import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from apps.accounts.models import Team, User
from apps.clusters.models import Tier, WatchCoverage
from apps.fairness.models import QueueTimeObjective
from apps.usage.models import CollectionWindow, TierDay, TierHour
from tests.factories import BEGINNING, Portal, make_model, make_workload
from tests.pending.rows import make_episode
from tests.quota_requests.requests import make_request
from tests.web.conftest import HOURLY, LOOKED
from tests.web.pages import records_of, text_of
from tests.web.shown import tables_of
from tests.web.test_devices_page import words


def test_the_teams_of_a_tier_sum_to_what_was_allocated_on_it(admin: Client) -> None:
    tiers = admin.get(f"/?{HOURLY}&format=csv&table=tiers").content.decode()
    gold = next(csv.DictReader(io.StringIO(tiers)))
    teams = admin.get(
        f"/capacity/tiers/gold/?{HOURLY}&tab=teams&format=csv&table=teams"
    ).content.decode()
    total = list(csv.DictReader(io.StringIO(teams)))[-1]
    assert total["team"] == "Total"
    for key in ("allocated_gpu_hours", "busy_gpu_hours", "utilization_ratio"):
        assert total[key] == gold[key]


def test_the_gpus_of_a_tier_have_its_energy_and_carbon(admin: Client) -> None:
    gold = {"tier__name": "gold"}
    TierHour.objects.filter(**gold).update(energy_mwh=1_000_000)
    TierDay.objects.filter(**gold).update(energy_mwh=24_000_000)
    rows = records_of(admin, f"/capacity/tiers/gold/?{HOURLY}&tab=gpus&format=csv&table=energy")
    assert rows
    days = {"start": "2025-10-25T00:00:00+02:00", "end": "2025-10-28T00:00:00+01:00"}
    asked = {**days, "interval": "total", "group_by": "gpu_model", "tier": "gold"}
    found = {
        row["gpu_model"]: row["energy_kwh"]
        for row in admin.get("/api/v1/usage", asked).json()["results"]
    }
    assert {row["gpu_model"]: float(row["energy_kwh"]) for row in rows} == found
    assert {row["carbon_kg"] for row in rows} == {""}, "no factor is no carbon, and not 0"


def test_hours_that_were_not_collected_are_lines_without_numbers(admin: Client) -> None:
    rows = records_of(admin, f"/capacity/tiers/gold/?{HOURLY}&format=csv&table=ledger")
    assert len(rows) == 73
    lost = rows[2]
    assert lost["period"] == "2025-10-25T02:00:00+02:00"
    assert (lost["capacity_gpus"], lost["allocated_gpu_hours"], lost["hours"]) == ("", "", "0")
    assert [row["period"] for row in rows[26:28]] == [
        "2025-10-26T02:00:00+02:00",
        "2025-10-26T02:00:00+01:00",
    ]


@pytest.mark.parametrize(("person", "named"), [("ben", True), ("dan", False)])
def test_who_waits_for_a_tier_is_counted_for_all_and_named_to_their_own(
    person: str, named: bool, portal: Portal, signed_in: Callable[[User], Client]
) -> None:
    page = text_of(
        signed_in(getattr(portal, person)), f"/capacity/tiers/gold/?{HOURLY}&tab=pending"
    )
    section = page[page.index('id="tier-pending"') :]
    assert "4 GPUs in 1 pod , the oldest for" in words(section)
    assert ("/pending/west/uid-train-2/" in section) is named
    assert ("None of them is of your teams." in section) is not named


def test_a_tier_without_pending_pods_says_so_and_lists_what_is_blocked(admin: Client) -> None:
    page = text_of(admin, f"/capacity/tiers/silver/?{HOURLY}&tab=pending")
    pending = tables_of(page)["pending"].rows[1:]
    assert pending[0][0].text == "serve"
    assert "quota" in [cell.text.strip() for cell in pending[0]]
    # One cluster is not watched now, the other is known by metrics alone: the earlier time counts.
    assert re.search(r"none pending</small> <small>as of <time[^>]*>27 Oct 2025 23:55</time>", page)
    row = next(
        row for row in records_of(admin, "/?format=csv&table=tiers") if row["tier"] == "silver"
    )
    assert row["waiting_now_pods"] == "0"


@pytest.mark.parametrize("path", ["/", "/capacity/tiers/silver/"])
def test_a_tier_of_which_no_hour_is_known_has_no_zero_pending(admin: Client, path: str) -> None:
    CollectionWindow.objects.filter(cluster__name="east").delete()
    page = text_of(admin, f"{path}?{HOURLY}&tab=pending")
    assert "<small>no data</small>" in page
    assert "none pending" not in page
    row = next(
        row for row in records_of(admin, "/?format=csv&table=tiers") if row["tier"] == "silver"
    )
    assert row["waiting_now_pods"] == ""
    compared = {row["tier"]: row for row in records_of(admin, "/capacity/tiers/?format=csv")}
    assert compared["silver"]["waiting_now_gpu_equivalents"] == ""


def test_a_tier_tells_its_queue_times_by_day_and_what_is_promised_of_it(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django.utils.timezone.now", lambda: LOOKED)
    address = f"/capacity/tiers/gold/?{HOURLY}"
    page = text_of(admin, address)
    assert "Queue time by day" in page
    rows = {
        row["commitment"]: row
        for row in records_of(admin, f"{address}&format=csv&table=commitments")
    }
    # Entitled are 4 + 2, and the quotas of two namespaces are 8 and 4; gold has 8 GPUs.
    assert rows["Entitlements"]["promised_gpus"] == "6"
    assert rows["ResourceQuota limits"]["promised_gpus"] == "12"
    assert float(rows["ResourceQuota limits"]["overcommitment_ratio"]) == 12 / 8


def test_a_tier_of_watched_clusters_alone_is_known_now(portal: Portal, admin: Client) -> None:
    now = timezone.now()
    west, _ = portal.clusters
    WatchCoverage.objects.filter(cluster=west).update(end=now)
    TierDay.objects.create(
        tier=portal.tiers[1], cluster=west, day=now.date(), gpu_model=make_model(),
        capacity_type="on-demand",
    )  # fmt: skip
    page = text_of(admin, f"/capacity/tiers/silver/?{HOURLY}&tab=pending")
    assert "none pending</small>" in page
    assert "none pending</small> <small>as of" not in page
    home = text_of(admin, f"/?{HOURLY}")
    assert "; east: 28 Oct 2025 00:00" in home


def test_pages_of_what_left_the_catalog_keep_its_hours(admin: Client) -> None:
    Tier.objects.filter(name="gold").update(active=False)
    Team.objects.filter(name="vision").update(active=False)
    overview = text_of(admin, f"/?{HOURLY}")
    assert 'href="/capacity/tiers/gold/' in overview
    for address in ("/capacity/tiers/gold/", "/capacity/fairness/gold/", "/capacity/teams/vision/"):
        page = text_of(admin, f"{address}?{HOURLY}")
        assert ("No longer in the catalog." in page) is ("fairness" not in address)


def aim(portal: Portal, seconds: int = 600) -> None:
    """Let most of the work of gold have missed its objective, in the hours up to now."""
    now = timezone.now()
    gold = Tier.objects.get(name="gold")
    QueueTimeObjective.objects.create(tier=gold, p95_seconds=seconds, days=28, valid_from=BEGINNING)
    train = make_workload(portal.clusters[0], "vision", "aimed")
    for minutes in (5, 30, 30, 30):
        until = now - timedelta(hours=2)
        make_episode(train, since=until - timedelta(minutes=minutes), until=until, tier=gold)


def test_a_tier_tells_its_queue_time_objective(portal: Portal, admin: Client) -> None:
    before = text_of(admin, f"/capacity/tiers/gold/?{HOURLY}")
    assert "objective" not in words(before).lower()
    aim(portal)
    page = words(text_of(admin, f"/capacity/tiers/gold/?{HOURLY}"))
    assert "Queue-time objective" in page
    rows = {
        row["figure"]: row["value"]
        for row in records_of(admin, f"/capacity/tiers/gold/?{HOURLY}&format=csv&table=objective")
    }
    assert rows["Objective"] == "95.0 % within 10m"
    assert rows["Attainment, 28 days"] == "25.0 %"
    assert rows["Missed"] == "3 of 4"
    assert rows["Error budget left"] == "−1,400.0 %"


@pytest.mark.parametrize(("person", "said"), [("cleo", "25 % within 10m"), ("ada", "0/1")])
def test_homes_tell_the_objectives_of_tiers(
    person: str, said: str, portal: Portal, signed_in: Callable[[User], Client]
) -> None:
    client = signed_in(getattr(portal, person))
    assert said not in words(text_of(client, f"/?{HOURLY}"))
    aim(portal)
    page = words(text_of(client, f"/?{HOURLY}"))
    assert said in page
    assert person != "cleo" or "queue-time objective, slow burn" in page


def test_a_tier_has_a_calendar_of_bookings(
    portal: Portal, signed_in: Callable[[User], Client]
) -> None:
    now = timezone.now()
    make_request(
        portal,
        tiers=["gold"],
        state="scheduled",
        starts_at=now + timedelta(days=2),
        until=now + timedelta(days=5),
    )
    own = words(text_of(signed_in(portal.ada), "/capacity/tiers/gold/?tab=bookings"))
    other = words(text_of(signed_in(portal.dan), "/capacity/tiers/gold/?tab=bookings"))
    assert "vision +" in own
    assert "another team +" in other
    assert "vision +" not in other
