"""The page of a tier."""

import csv
import io
from collections.abc import Callable

import pytest
from django.test import Client

from apps.accounts.models import Team, User
from apps.clusters.models import Tier
from tests.factories import Portal
from tests.web.conftest import HOURLY
from tests.web.pages import text_of
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
    assert "1 pod for 4 GPUs, the oldest for" in section
    assert ("train-2" in section) is named
    assert ("None of them is of your teams." in section) is not named


def test_a_tier_that_nobody_waits_for_says_so(admin: Client) -> None:
    page = text_of(admin, f"/tiers/silver/?{HOURLY}")
    assert "nobody waits" in page
    assert 'id="waits"' not in page


def test_pages_of_what_left_the_catalog_keep_its_hours(admin: Client) -> None:
    Tier.objects.filter(name="gold").update(active=False)
    Team.objects.filter(name="vision").update(active=False)
    overview = text_of(admin, f"/?{HOURLY}")
    assert 'href="/tiers/gold/' in overview
    for address in ("/tiers/gold/", "/fairness/gold/", "/teams/vision/"):
        page = text_of(admin, f"{address}?{HOURLY}")
        assert ("No longer in the catalog." in page) is ("fairness" not in address)
