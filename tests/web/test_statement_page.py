"""A team's week in words and numbers."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from apps.accounts.models import User
from apps.clusters.domain.window import Window
from apps.clusters.models import Tier
from apps.costs.domain.carbon import hour_key
from apps.costs.models import EnergyFactor
from apps.costs.services import price_hours
from apps.fairness.models import FairnessDay, QueueTimeObjective, TierFairnessHour
from apps.pending.models import Episode
from tests.factories import BEGINNING, Portal, make_team, make_tier, make_workload
from tests.pending.rows import make_episode
from tests.web.entitlements import HOUR, MORNING
from tests.web.pages import records_of, table_links, text_of
from tests.web.shown import tables_of
from tests.web.test_devices_page import words

SignIn = Callable[[User], Client]
VISION = "/capacity/teams/vision/statement/"
WEEK = "week=2025-10-22"
WIDE = "first=2025-10-20&last=2025-10-26"


def test_a_week_is_told_in_words_from_any_day_of_it(admin: Client) -> None:
    page = words(text_of(admin, f"{VISION}?{WEEK}"))
    assert "Week of 20 Oct – 26 Oct 2025 , Monday to Sunday, local to Europe/Berlin." in page
    assert "gold: entitled to 4 GPUs, received 5.0, borrowed 1.0" in page
    assert "of its fair share" in page


def test_the_figures_stand_below(admin: Client) -> None:
    rows = records_of(admin, f"{VISION}?{WEEK}&format=csv&table=figures")
    gold = next(row for row in rows if row["tier"] == "gold")
    assert (gold["entitlement_gpu_hours"], gold["allocated_gpu_hours"]) == ("16", "20")
    assert (gold["borrowed_gpu_hours"], gold["from_pool_gpu_hours"]) == ("4", "4")
    assert int(gold["hours_known"]) + int(gold["hours_estimated"]) == 4


def test_weeks_beside_lead_on_and_the_window_is_kept(admin: Client) -> None:
    page = unescape(text_of(admin, f"{VISION}?{WEEK}&window=30d"))
    assert f'href="{VISION}?week=2025-10-27&window=30d" rel="next"' in page
    assert 'rel="prev"' not in page  # nothing was computed before
    later = unescape(text_of(admin, f"{VISION}?week=2025-10-27"))
    assert f'href="{VISION}?week=2025-10-20&window=7d" rel="prev"' in later


def test_of_a_week_of_which_nothing_is_known_nothing_is_claimed(
    portal: Portal, admin: Client
) -> None:
    page = words(text_of(admin, f"{VISION}?week=2025-10-27"))
    assert "gold: nothing of this week is known yet." in page
    assert "No hour of this week is known, nor who borrowed, lent" in page
    assert "Nothing was borrowed" not in page
    assert "entitled to nothing" not in page
    make_team("audio")
    page = words(text_of(admin, "/capacity/teams/audio/statement/?week=2025-10-27"))
    assert "No hour of this week is known." in page
    assert "entitled to nothing" not in page


def test_of_a_week_known_in_part_only_the_hours_that_are_known_are_told_of(
    portal: Portal, admin: Client
) -> None:
    make_team("audio")
    page = words(text_of(admin, f"/capacity/teams/audio/statement/?{WEEK}"))
    assert "no GPUs in this week, as far as it is known: that is 4 hours of it." in page
    assert "In the hours that are known nothing was borrowed or lent" in page


def test_without_a_week_it_is_the_one_that_runs(admin: Client) -> None:
    assert "; not over yet." in words(text_of(admin, VISION))


@pytest.mark.parametrize(
    ("week", "said"),
    [
        ("soon", "“soon” is not a day such as 2026-10-26. This week is shown."),
        ("9999-12-31", "9999-12-31 is too early or too late."),
        ("0001-01-01", "0001-01-01 is too early or too late."),
        ("%3Cimg%3E", "“<img>” is not a day"),
        ("2999-01-01", "not over yet"),
    ],
)
def test_a_week_that_is_none_is_said_and_breaks_nothing(
    week: str, said: str, admin: Client
) -> None:
    page = text_of(admin, f"{VISION}?week={week}")
    assert said in unescape(page)
    assert "<img>" not in page


def test_hours_that_are_not_known_are_told(portal: Portal, admin: Client) -> None:
    TierFairnessHour.objects.update(watched=True)
    assert "Incomplete data" not in words(text_of(admin, f"{VISION}?{WEEK}"))
    TierFairnessHour.objects.filter(hour=MORNING).update(watched=False)
    page = words(text_of(admin, f"{VISION}?{WEEK}"))
    assert "Demand of 1 h is estimated from series" in page


def test_everybody_reads_the_statement_of_every_team(portal: Portal, signed_in: SignIn) -> None:
    page = text_of(signed_in(portal.dan), f"{VISION}?{WEEK}")
    assert "entitled to 4 GPUs, received 5.0" in page
    assert "vision-prod" not in page
    assert admin_finds_no_team(signed_in(portal.cleo))


def test_the_objectives_of_its_tiers_are_told_for_the_week(
    portal: Portal, admin: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    def page(query: str = WEEK) -> str:
        return words(text_of(admin, f"{VISION}?{query}"))

    gold = Tier.objects.get(name="gold")
    train = make_workload(portal.clusters[0], "vision", "aimed")
    Episode.objects.all().delete()
    # Three within the week, of which one is late, and a late one of the week after.
    for minutes, until in (
        (5, MORNING),
        (5, MORNING),
        (30, MORNING),
        (30, MORNING + 7 * 24 * HOUR),
    ):
        make_episode(train, since=until - timedelta(minutes=minutes), until=until, tier=gold)
    assert "objective" not in page().lower()

    def aim(tier: Tier) -> None:
        QueueTimeObjective.objects.create(tier=tier, p95_seconds=600, days=28, valid_from=BEGINNING)

    aim(gold)
    said = (
        "Queue-time objectives , all teams together: gold 67 % within 10m, error budget left −567 %"
    )
    with CaptureQueriesContext(connection) as one_tier:
        assert said in page()
    for number in range(4):
        aim(make_tier(f"unused-{number}", position=90 + number))
    with django_assert_max_num_queries(len(one_tier)):
        assert said in page()
    assert "unused-" not in page()
    assert "objective" not in page("week=2999-01-01").lower(), "the week has not begun"


def admin_finds_no_team(client: Client) -> bool:
    response = client.get("/capacity/teams/nobody/statement/")
    return response.status_code == 404 and "There is no team" in response.content.decode()


def test_energy_is_for_who_sees_the_team_in_detail(
    portal: Portal, admin: Client, signed_in: SignIn
) -> None:
    """In the statement and on the tab of costs, whether a tariff bills it or not."""
    page = words(text_of(admin, f"{VISION}?{WEEK}"))
    said = re.search(r"Energy: ([\d.]+) kWh of its GPUs, without PUE\. No carbon factor", page)
    assert said is not None
    assert float(said[1]) > 0
    cost = records_of(admin, f"/capacity/teams/vision/?tab=cost&{WIDE}&format=csv&table=energy")
    assert float(cost[0]["energy_kwh"]) == pytest.approx(float(said[1]), abs=0.05)
    assert cost[0]["carbon_kg"] == ""
    outsider = signed_in(portal.dan)
    assert "Energy:" not in words(text_of(outsider, f"{VISION}?{WEEK}"))


def test_energy_beside_costs_is_of_the_teams_whose_costs_one_sees(
    portal: Portal, admin: Client, signed_in: SignIn
) -> None:
    def energy(client: Client, query: str = "") -> dict[str, float]:
        address = f"/costs/?tab=energy&group=team&{WIDE}&format=csv&table=energy{query}"
        return {row["team"]: float(row["energy_kwh"]) for row in records_of(client, address)}

    everyone = energy(admin)
    assert {"vision", "speech"} < set(everyone)
    # A table of sums would be open to all; beside costs it must not count more than these do.
    member = signed_in(portal.ben)
    assert energy(member) == {"vision": everyone["vision"]}
    assert energy(member, "&team=speech") == {}
    cost = records_of(admin, f"/capacity/teams/vision/?tab=cost&{WIDE}&format=csv&table=energy")
    assert float(cost[0]["energy_kwh"]) == everyone["vision"]


def test_energy_has_a_total_and_tells_pue_factor_and_where_they_come_from(
    portal: Portal, admin: Client, signed_in: SignIn
) -> None:
    address = f"/costs/?tab=energy&group=team&{WIDE}"
    assert "No PUE or carbon factor is set" in text_of(admin, address)
    west, east = portal.clusters
    start = read_window(admin, address).start
    factor = {"valid_from": BEGINNING}
    EnergyFactor.objects.create(
        cluster=west, pue=Decimal("1.3"), carbon_g_per_kwh=Decimal(380), **factor
    )
    by_hour = {hour_key(start + timedelta(hours=n)): str(100 + n) for n in range(3)}
    EnergyFactor.objects.create(
        cluster=east, pue=Decimal("1.1"), carbon_file="carbon/east.csv", carbon_hours=by_hour,
        **factor,
    )  # fmt: skip
    price_hours(now=timezone.now())
    page = text_of(admin, address)
    assert "Carbon = energy × PUE × carbon factor of its hour" in page
    total = [cell.text for cell in tables_of(page)["energy"].rows[-1]]
    assert total[0] == "Total"
    rows = records_of(admin, f"{address}&format=csv&table=energy")
    for column in ("energy_kwh", "carbon_kg", "energy_without_factor_kwh"):
        *parts, whole = [float(row[column] or 0) for row in rows]
        assert whole == pytest.approx(sum(parts))
    # Everybody may see them, as prices.
    own = records_of(signed_in(portal.ben), f"{address}&format=csv&table=factors")
    by_cluster = {row["cluster"]: row for row in own}
    assert (by_cluster["west"]["pue"], by_cluster["west"]["carbon_g_per_kwh"]) == ("1.3", "380")
    assert by_cluster["west"]["source"] == "catalog"
    assert by_cluster["west"]["hours_without_factor"] == "0"
    file = by_cluster["east"]
    assert (file["source"], file["carbon_g_per_kwh"]) == ("carbon/east.csv, by hour", "101")
    assert (file["least_g_per_kwh"], file["most_g_per_kwh"]) == ("100", "102")
    window = read_window(admin, address)
    assert int(file["hours_without_factor"]) == len(list(window.hours())) - 3


def read_window(client: Client, address: str) -> Window:
    response: Any = client.get(address)
    found: Window = response.context["reading"].window
    return found


def test_the_costs_of_a_workload_have_its_energy_which_is_no_gpu_hours(admin: Client) -> None:
    page = text_of(admin, f"/workloads/west/vision/Job/train/?tab=cost&{WIDE}")
    assert "Energy and carbon" in page
    assert "energy" in tables_of(page)
    rows = records_of(
        admin, f"/workloads/west/vision/Job/train/?tab=cost&{WIDE}&format=csv&table=cost"
    )
    assert all((row["gpu_hours"] == "") == (row["cause"] == "Energy") for row in rows)


def test_every_table_comes_as_a_file(admin: Client) -> None:
    page = text_of(admin, f"{VISION}?{WEEK}")
    links = table_links(page)
    assert {"figures"} <= set(tables_of(page))
    for link in links:
        assert "week=2025-10-22" in link
        assert records_of(admin, link)


def test_it_says_when_it_was_made_of_when_and_how_much_is_known(admin: Client) -> None:
    page = words(text_of(admin, f"{VISION}?{WEEK}"))
    assert "for 20 Oct 2025 00:00 – 27 Oct 2025 00:00 (Europe/Berlin)." in page
    # The clocks went back in that week.
    said = "Hours of the week: 169, 0 known, 4 estimated from series, 165 missing"
    assert said in page
    assert "Figures exclude missing hours." in page
    assert "Made " in page


def test_a_week_that_is_known_whole_says_so(portal: Portal, admin: Client) -> None:
    TierFairnessHour.objects.all().delete()
    FairnessDay.objects.all().delete()
    start = datetime(2025, 10, 19, 22, tzinfo=UTC)
    for tier in portal.tiers:
        TierFairnessHour.objects.bulk_create(
            TierFairnessHour(tier=tier, hour=start + n * HOUR, state="complete", watched=True)
            for n in range(169)
        )
    page = words(text_of(admin, f"{VISION}?{WEEK}"))
    assert "All 169 hours of the week are known." in page
    TierFairnessHour.objects.filter(hour__lt=start + 100 * HOUR).update(watched=False)
    page = words(text_of(admin, f"{VISION}?{WEEK}"))
    assert "Hours of the week: 169, 69 known, 100 estimated from series" in page
    assert "missing" not in page
    make_team("audio")
    page = words(text_of(admin, f"/capacity/teams/audio/statement/?{WEEK}"))
    assert "This team had no entitlement, no demand and no GPUs" in page
    assert "Nothing was borrowed or lent" in page


def test_once_hours_are_gone_nobody_is_said_to_have_held_nothing_idle(
    portal: Portal, admin: Client
) -> None:
    gone = "Who held GPUs idle meanwhile is not known any more"
    assert gone not in words(text_of(admin, f"{VISION}?{WEEK}"))
    FairnessDay.objects.update(pruned=True)
    assert gone in words(text_of(admin, f"{VISION}?{WEEK}"))


def test_what_is_for_the_screen_is_left_out_on_paper(admin: Client) -> None:
    page = text_of(admin, f"{VISION}?{WEEK}")
    assert '<nav class="statement-weeks d-print-none"' in page
