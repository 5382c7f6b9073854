"""The page of a tier."""

import csv
import io
from collections.abc import Callable

import pytest
from django.test import Client
from django.utils import timezone

from apps.accounts.models import Team, User
from apps.clusters.models import Tier, WatchCoverage
from apps.usage.models import CollectionWindow, TierDay
from tests.factories import Portal, make_model
from tests.web.conftest import HOURLY
from tests.web.pages import records_of, text_of
from tests.web.shown import tables_of


def test_the_teams_of_a_tier_sum_to_what_was_allocated_on_it(admin: Client) -> None:
    tiers = admin.get(f"/?{HOURLY}&format=csv&table=tiers").content.decode()
    gold = next(csv.DictReader(io.StringIO(tiers)))
    teams = admin.get(f"/tiers/gold/?{HOURLY}&format=csv&table=teams").content.decode()
    total = list(csv.DictReader(io.StringIO(teams)))[-1]
    assert total["team"] == "Total"
    for key in ("allocated_gpu_hours", "busy_gpu_hours", "utilization_ratio"):
        assert total[key] == gold[key]


def test_hours_that_were_not_collected_are_lines_without_numbers(admin: Client) -> None:
    rows = tables_of(text_of(admin, f"/tiers/gold/?{HOURLY}"))["ledger"].rows[1:-1]
    assert len(rows) == 73
    assert [cell.text for cell in rows[2][:3]] == ["Sat 25 Oct 02:00 CEST", "–", "–"]
    assert rows[2][-1].text == "1"
    assert [row[0].text for row in rows[26:28]] == ["Sun 26 Oct 02:00 CEST", "Sun 26 Oct 02:00 CET"]


@pytest.mark.parametrize(("person", "named"), [("ben", True), ("dan", False)])
def test_who_waits_for_a_tier_is_counted_for_all_and_named_to_their_own(
    person: str, named: bool, portal: Portal, signed_in: Callable[[User], Client]
) -> None:
    page = text_of(signed_in(getattr(portal, person)), f"/tiers/gold/?{HOURLY}")
    section = page[page.index('id="waits"') : page.index('id="teams"')]
    assert "1 pod for 4 GPUs, the longest for" in section
    assert ("train-2" in section) is named
    assert ("None of them is of your teams." in section) is not named


def test_a_tier_that_nobody_waits_for_says_so(admin: Client) -> None:
    page = text_of(admin, f"/tiers/silver/?{HOURLY}")
    assert 'id="waits"' not in page
    # One cluster is not watched now, the other is known by metrics alone: the earlier time counts.
    assert "none pending</small> <small>as of 2025-10-27 23:55:00" in page
    row = next(
        row for row in records_of(admin, "/?format=csv&table=tiers") if row["tier"] == "silver"
    )
    assert row["waiting_now_pods"] == "0"


@pytest.mark.parametrize("path", ["/", "/tiers/silver/", "/tiers/"])
def test_a_tier_of_which_no_hour_is_known_has_no_zero_pending(admin: Client, path: str) -> None:
    CollectionWindow.objects.filter(cluster__name="east").delete()
    page = text_of(admin, f"{path}?{HOURLY}")
    assert "<small>no data</small>" in page
    assert "none pending" not in page
    row = next(
        row for row in records_of(admin, "/?format=csv&table=tiers") if row["tier"] == "silver"
    )
    assert row["waiting_now_pods"] == ""


def test_a_tier_of_watched_clusters_alone_is_known_now(portal: Portal, admin: Client) -> None:
    now = timezone.now()
    west, _ = portal.clusters
    WatchCoverage.objects.filter(cluster=west).update(end=now)
    TierDay.objects.create(
        tier=portal.tiers[1], cluster=west, day=now.date(), gpu_model=make_model(),
        capacity_type="on-demand",
    )  # fmt: skip
    page = text_of(admin, f"/tiers/silver/?{HOURLY}")
    assert "none pending</small>" in page
    assert "none pending</small> <small>as of" not in page
    assert "; east: as of 2025-10-28 00:00:00" in text_of(admin, f"/?{HOURLY}")


def test_pages_of_what_left_the_catalog_keep_its_hours(admin: Client) -> None:
    Tier.objects.filter(name="gold").update(active=False)
    Team.objects.filter(name="vision").update(active=False)
    overview = text_of(admin, f"/?{HOURLY}")
    assert 'href="/tiers/gold/' in overview
    for address in ("/tiers/gold/", "/fairness/gold/", "/teams/vision/"):
        page = text_of(admin, f"{address}?{HOURLY}")
        assert ("No longer in the catalog." in page) is ("fairness" not in address)
