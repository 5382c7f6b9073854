"""Fairness: all tiers, one tier, what-if, and where a team stands on its own page."""

import re
from collections.abc import Callable
from html import unescape

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import User
from apps.clusters.models import WatchCoverage
from apps.fairness.models import LoanHour, TeamFairnessHour, TierFairnessHour
from apps.fairness.services import compute_hour
from apps.quotas.models import Entitlement
from tests.factories import Portal, make_team, make_tier
from tests.web.conftest import DAILY, HOURLY, LOOKED
from tests.web.entitlements import COMPUTED, HOUR, MORNING, entitle
from tests.web.pages import check_explained, records_of, table_links, text_of
from tests.web.shown import figures_of, tables_of
from tests.web.test_devices_page import words

SignIn = Callable[[User], Client]
LIST = f"/capacity/fairness/?{HOURLY}"
GOLD = f"/capacity/fairness/gold/?{HOURLY}"
TEAM = f"/capacity/teams/vision/?tab=fairness&{HOURLY}"
WHAT_IF = f"/capacity/fairness/gold/what-if/?{HOURLY}"


def again(portal: Portal) -> None:
    """Compute the hours again, after what they are made of has changed."""
    for number in range(COMPUTED):
        compute_hour(MORNING + number * HOUR, now=LOOKED)


def rows_of(page: str, table: str) -> dict[str, list[str]]:
    rows = tables_of(page)[table].rows[1:]
    return {row[0].text: [cell.text for cell in row[1:]] for row in rows}


# ---------------------------------------------------------------- all tiers


def test_each_tier_tells_how_even_it_was_and_who_was_denied(admin: Client) -> None:
    rows = records_of(admin, f"{LIST}&format=csv&table=tiers")
    gold = next(row for row in rows if row["tier"] == "gold")
    # Vision held 5 of the 8 gold GPUs, 4 of them its own, and waited for 4 more.
    assert gold["capacity_gpu_hours"] == "32"
    assert gold["borrowed_gpu_hours"] == "4"
    assert gold["from_pool_gpu_hours"] == "4"
    assert int(gold["hours_known"]) + int(gold["hours_estimated"]) == 4
    assert 0 < float(gold["jain_index"]) <= 1


def test_dominant_shares_are_of_all_tiers(admin: Client) -> None:
    rows = rows_of(text_of(admin, f"{LIST}&tab=dominant"), "dominant")
    assert rows["vision"] == ["62.5", "gold"]


def test_a_team_filter_narrows_sums_and_says_that_indices_are_of_all(admin: Client) -> None:
    every = rows_of(text_of(admin, f"{LIST}&tab=figures"), "tiers")["gold"]
    page = text_of(admin, f"{LIST}&team=speech&tab=figures")
    own = rows_of(page, "tiers")["gold"]
    assert (every[0], own[0]) == ("2", "1")
    assert every[1] == own[1]
    assert "Indices are of all teams; sums are of speech." in page
    page = text_of(admin, f"{LIST}&team=speech&tab=dominant")
    assert list(rows_of(page, "dominant")) == ["speech"]
    assert records_of(admin, f"{LIST}&team=speech&format=csv&table=underserved") == []


def test_the_list_answers_which_tier_is_unfair_who_is_short_and_who_holds_idle(
    admin: Client,
) -> None:
    (gold, *_) = records_of(admin, f"{LIST}&format=csv&table=unfair")
    assert (gold["tier"], float(gold["unmet_gpu_hours"])) == ("gold", 8.0)
    (short,) = records_of(admin, f"{LIST}&format=csv&table=underserved")
    assert (short["team"], float(short["unmet_gpu_hours"])) == ("vision · gold", 8.0)
    (idle,) = records_of(admin, f"{LIST}&format=csv&table=idle")
    assert idle == {"team": "speech · gold", "unallocated_gpu_hours": "4", "idle_gpu_hours": "0"}
    page = words(text_of(admin, LIST))
    assert "Unmet fair share 8 GPU-h on 1 of" in page
    assert "Lowest fairness index" in page
    assert "Overcommitted tiers" in page
    assert {"unmet_fair_share", "jain_index", "idle_entitlement_meanwhile"} <= check_explained(
        admin, LIST
    )


def test_a_tier_without_known_hours_has_no_data_rather_than_zero(admin: Client) -> None:
    TierFairnessHour.objects.filter(tier__name="gold").update(state="missing")
    TeamFairnessHour.objects.filter(tier__name="gold").delete()
    rows = records_of(admin, f"{LIST}&format=csv&table=unfair")
    assert {row["tier"]: row["unmet_gpu_hours"] for row in rows}["gold"] == ""
    assert "no data" in words(text_of(admin, LIST))


def test_the_list_compares_as_many_hours_as_can_be_read(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.web.fairness.overview.MOST_COMPARED", 7)
    monkeypatch.setattr("apps.web.fairness.tier.MOST_COMPARED", 7)
    for address in (LIST, GOLD):
        page = words(text_of(admin, address))
        assert "Choose a shorter time: these are too many hours and teams to compare." in page
        assert "vision" in page


def test_everybody_sees_the_sums_of_all_teams(portal: Portal, signed_in: SignIn) -> None:
    for address in (LIST, GOLD, f"{WHAT_IF}&gpus=4"):
        pages = [
            re.sub(r'name="csrf\w+" value="\w+"|dan|cleo|admin|viewer', "", page)
            for page in (text_of(signed_in(portal.dan), address),)
        ]
        assert "vision" in pages[0]
        assert "vision-prod" not in pages[0]


def test_what_is_not_known_and_what_is_estimated_is_said(portal: Portal, admin: Client) -> None:
    TierFairnessHour.objects.filter(hour=MORNING).update(state="missing")
    TierFairnessHour.objects.filter(hour__gt=MORNING).update(watched=False)
    page = words(text_of(admin, GOLD))
    assert "Totals exclude 1 h without data." in page
    assert "Demand of 3 h is estimated from series" in page
    gold = next(
        row for row in records_of(admin, f"{LIST}&format=csv&table=tiers") if row["tier"] == "gold"
    )
    hours = [gold[f"hours_{name}"] for name in ("known", "estimated", "unknown")]
    assert hours == ["0", "3", "1"]
    assert float(gold["denied_gpu_hours"]) > 0


def test_where_no_hour_is_known_nobody_is_said_to_hold_no_more(admin: Client) -> None:
    TierFairnessHour.objects.update(state="missing")
    for model in (LoanHour, TeamFairnessHour):
        model.objects.all().delete()
    for tab in ("shares", "matrix"):
        page = words(text_of(admin, f"{GOLD}&tab={tab}"))
        assert "No team" not in page
        assert "No data: demand of no hour of this window is known or estimated." in page
    assert 'class="key-missing"' in text_of(admin, GOLD)


# ---------------------------------------------------------------- one tier


def test_bars_show_what_was_allocated_against_entitlement_and_demand(admin: Client) -> None:
    rows = records_of(admin, f"{GOLD}&format=csv&table=bars")
    vision, speech = rows
    assert (vision["team"], speech["team"]) == ("vision", "speech")
    assert (vision["allocated_gpus"], vision["entitlement_gpus"]) == ("5", "4")
    assert (speech["allocated_gpus"], speech["entitlement_gpus"]) == ("1", "2")
    assert float(vision["demand_gpus"]) > 5
    page = text_of(admin, GOLD)
    assert 'aria-label="5 GPUs allocated, entitlement 4, demand ' in page


def test_shares_over_time_are_small_multiples_on_one_scale(admin: Client) -> None:
    page = text_of(admin, GOLD)
    assert page.count('<svg class="panel"') == 2
    assert 'aria-label="vision: 5 to 5 GPUs allocated"' in page
    rows = records_of(admin, f"{GOLD}&format=csv&table=shares")
    known = [row for row in rows if row["team"] == "vision" and row["allocated_gpus"]]
    assert {row["allocated_gpus"] for row in known} == {"5"}


def test_of_many_teams_those_with_most_demand_are_drawn_and_the_file_has_all(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_both = {}
    for address in (GOLD, f"/capacity/tiers/gold/?tab=fairness&{HOURLY}"):
        of_both[address] = records_of(admin, f"{address}&format=csv&table=shares")
        assert {row["team"] for row in of_both[address]} == {"vision", "speech"}
    monkeypatch.setattr("apps.web.fairness.shares.MOST_PANELS", 1)
    for address, rows in of_both.items():
        page = text_of(admin, address)
        assert re.findall(r'<svg class="panel".*?aria-label="(\w+):', page) == ["vision"]
        told = "Of 2 teams the 1 with most demand are drawn; the file has all."
        assert told in words(page)
        assert f"of {len(rows)} rows" in words(page)
        assert records_of(admin, f"{address}&format=csv&table=shares") == rows


def test_shares_over_time_and_the_bars_beside_them_have_one_average(admin: Client) -> None:
    page = text_of(admin, f"/capacity/fairness/gold/?{DAILY}")
    bars = records_of(admin, f"/capacity/fairness/gold/?{DAILY}&format=csv&table=bars")
    panels = re.findall(
        r'<p class="panel-head">.*?>(\w+)</a><span class="row-value"><b>([\d.]+)</b>', page
    )
    assert {team: float(value) for team, value in panels} == pytest.approx(
        {row["team"]: float(row["allocated_gpus"]) for row in bars}
    )


def test_the_page_ranks_who_is_short_and_who_holds_idle_entitlement(admin: Client) -> None:
    teams = records_of(admin, f"{GOLD}&format=csv&table=teams")
    unmet = {row["team"]: float(row["denied_gpu_hours"]) for row in teams}
    short = records_of(admin, f"{GOLD}&format=csv&table=short")
    told = [(row["team"], float(row["unmet_gpu_hours"])) for row in short]
    assert told == [(team, hours) for team, hours in told if hours == unmet[team] > 0]
    assert told == sorted(told, key=lambda one: -one[1])
    assert "vision" in dict(told)
    idle = records_of(admin, f"{GOLD}&format=csv&table=idle")
    (speech,) = (row for row in idle if row["team"] == "speech")
    # Speech held 1 of its 2 GPUs while vision was short.
    assert float(speech["unallocated_gpu_hours"]) > 0
    page = words(text_of(admin, GOLD))
    assert "Unused entitlement by team" in page
    total = sum(float(row["unallocated_gpu_hours"]) + float(row["idle_gpu_hours"]) for row in idle)
    (told_total,) = re.findall(
        r"([\d.]+) GPU-h in the \d hours? with unmet fair share of another team\.", page
    )
    assert float(told_total) == pytest.approx(total)


def test_figures_stand_above_the_tabs_and_say_how_good_they_are(admin: Client) -> None:
    every = {}
    for tab in ("shares", "teams", "matrix", "queue", "method"):
        page = text_of(admin, f"{GOLD}&tab={tab}")
        (row,) = re.findall(r'<dl class="figure-row".*?</dl>', page, re.DOTALL)
        every[tab] = words(row)
    assert len(set(every.values())) == 1
    assert "Borrowed 4 GPU-h" in every["shares"]
    TierFairnessHour.objects.filter(hour__lt=MORNING + HOUR).update(watched=False)
    TierFairnessHour.objects.filter(hour__gte=MORNING + HOUR).update(watched=True)
    assert "estimated before 26 Oct" in words(text_of(admin, GOLD))
    TierFairnessHour.objects.update(watched=False)
    (note,) = re.findall(r'<dd class="key-note">(estimated[^<]*)</dd>', text_of(admin, GOLD))
    assert note == "estimated"


def test_every_tab_has_an_address_and_the_simulator_is_one(admin: Client) -> None:
    labels = "Shares", "Teams", "Borrowing matrix", "Queue time", "Method", "Simulator"
    for address, label in ((GOLD, "Shares"), (f"{GOLD}&tab=queue", "Queue time")):
        page = text_of(admin, address)
        tabs = re.findall(r'<a class="tab" [^>]*?href="([^"]*)"[^>]*>([^<]*)</a>', page)
        assert tuple(name.strip() for _, name in tabs) == labels
        assert re.search(rf'aria-current="true">{label}</a>', page)
    page = text_of(admin, WHAT_IF)
    tabs = re.findall(r'<a class="tab" [^>]*?href="([^"]*)"[^>]*>([^<]*)</a>', page)
    assert tuple(name.strip() for _, name in tabs) == labels
    for address, _ in tabs:
        assert admin.get(unescape(address)).status_code == 200
    assert re.search(r'aria-current="true">Simulator</a>', page)


def test_a_teams_numbers_are_those_of_its_hours(admin: Client) -> None:
    rows = records_of(admin, f"{GOLD}&format=csv&table=teams")
    vision = next(row for row in rows if row["team"] == "vision")
    assert vision["entitlement_gpus"] == "4"
    assert vision["allocated_gpu_hours"] == "20"
    assert vision["borrowed_gpu_hours"] == "4"
    assert float(vision["denied_gpu_hours"]) > 0


def test_the_matrix_says_who_borrowed_from_whom(portal: Portal, admin: Client) -> None:
    Entitlement.objects.filter(team=portal.speech).update(gpus=8.0)
    again(portal)
    page = text_of(admin, f"{GOLD}&tab=matrix")
    (matrix,) = re.findall(r'<table class="heat-map">(.*?)</table>', page, re.DOTALL)
    assert words(f"<p>{matrix}").split() == [
        *["Lender", "↓", "Borrower", "→"],
        "vision",
        "speech",
        "4",
    ]
    loans = records_of(admin, f"{GOLD}&format=csv&table=loans")
    assert [tuple(row.values()) for row in loans] == [("speech", "vision", "4")]
    assert "loan" in check_explained(admin, f"{GOLD}&tab=matrix")
    found = check_explained(admin, "/capacity/teams/vision/statement/?week=2025-10-22")
    assert {"loan", "borrowed", "unmet_fair_share"} <= found
    loan = f"/explain/loan/?{HOURLY}&tier=gold&team=vision&other=speech&format=csv&table=rows"
    lines = records_of(admin, loan)
    assert {(line["lender"], line["borrower"]) for line in lines} == {("speech", "vision")}
    assert sum(float(line["gpu_hours"]) for line in lines) == 4.0


def test_a_large_matrix_shows_the_largest_and_its_table_all(portal: Portal, admin: Client) -> None:
    tier = portal.tiers[0]
    teams = [make_team(f"team-{n:02}", f"space-{n}") for n in range(30)]
    sums = {"tier": tier, "hour": MORNING}
    for n, team in enumerate(teams):
        amount = (n + 1) * 10**9
        LoanHour.objects.create(lender=team, borrower=teams[n - 1], amount=amount, **sums)
        own = {"lent": amount, "borrowed": (n + 2 if n < 29 else 1) * 10**9}
        TeamFairnessHour.objects.create(team=team, **own, **sums)
    page = text_of(admin, f"{GOLD}&tab=matrix")
    heads = re.findall(r"<thead[^>]*>\s*<tr[^>]*>(.*?)</tr>", page, re.DOTALL)
    assert heads[0].count("<th") == 1 + 12
    assert "The 12 largest each way; the table has every loan." in words(page)
    loans = records_of(admin, f"{GOLD}&format=csv&table=loans")
    assert len([row for row in loans if row["lender"].startswith("team-")]) == 30


def test_nobody_who_borrows_gives_no_matrix(portal: Portal, admin: Client) -> None:
    Entitlement.objects.filter(team=portal.vision).update(gpus=8.0)
    again(portal)
    page = text_of(admin, f"{GOLD}&tab=matrix")
    assert "heat-map" not in page
    assert "No team held more than its entitlement in this window." in page


def test_the_index_is_listed_by_day_beside_the_method(admin: Client) -> None:
    page = text_of(admin, f"/capacity/fairness/gold/?{DAILY}&tab=method")
    assert list(rows_of(page, "days")) == ["26 Oct 2025"]
    assert "Pending GPUs, at most fair share − allocated." in words(page)


def test_a_tier_of_which_nothing_was_computed_says_so(admin: Client) -> None:
    page = text_of(admin, "/capacity/fairness/gold/?first=2025-01-01&last=2025-01-02")
    assert "No hour of this window was computed yet." in page
    assert admin.get("/capacity/fairness/nowhere/").status_code == 404


def test_every_table_comes_as_a_file(admin: Client) -> None:
    for address, count in (
        (LIST, 3),
        *((f"{LIST}&tab={tab}", 1) for tab in ("figures", "dominant")),
        (GOLD, 4),
        *((f"{GOLD}&tab={tab}", 1) for tab in ("teams", "matrix", "queue", "method")),
        (f"{WHAT_IF}&gpus=4", 2),
    ):
        links = table_links(text_of(admin, address))
        assert len(links) >= count
        for link in links:
            assert records_of(admin, link)


def test_more_teams_and_tiers_need_no_more_queries(portal: Portal, admin: Client) -> None:
    def count(address: str) -> int:
        cache.clear()  # what was remembered would hide how many queries it takes
        with CaptureQueriesContext(connection) as queries:
            text_of(admin, address)
        return len(queries)

    pages = (LIST, GOLD, *(f"{GOLD}&tab={tab}" for tab in ("teams", "matrix", "queue", "method")))
    before = [count(address) for address in pages]
    for n in range(40):
        entitle(portal, make_team(f"team-{n:02}", f"space-{n}"), 0, 1.0)
        make_tier(f"tier-{n}", position=10 + n)
    again(portal)
    assert [count(address) for address in pages] == before
    assert len(records_of(admin, f"{GOLD}&format=csv&table=bars")) == 42
    # The rest unfolds.
    assert "34 more" in words(text_of(admin, GOLD))


def test_hostile_names_are_shown_as_text(portal: Portal, admin: Client) -> None:
    bad = "<img src=x>"
    entitle(portal, make_team(bad, "bad"), 0, 3.0)
    portal.tiers[1].name = bad
    portal.tiers[1].save()
    again(portal)
    LoanHour.objects.all().delete()
    asked = f"{WHAT_IF}&gpus={bad}&who={bad}&to={bad}"
    for address in (LIST, GOLD, f"{GOLD}&tab=teams", f"{GOLD}&tab=queue", WHAT_IF, asked):
        page = text_of(admin, address)
        assert "<img" not in page
        assert "&lt;img" in page


def test_a_window_that_is_over_does_not_say_who_waits_now(admin: Client) -> None:
    past, running = (
        words(text_of(admin, address))
        for address in (f"{GOLD}&tab=queue", "/capacity/fairness/gold/?tab=queue")
    )
    assert "Pending at end" in past
    assert "Pending now" not in past
    assert "Pending at end" not in running


def test_what_usage_factors_are_made_of_is_said_where_some_is_missing(admin: Client) -> None:
    # Two hours of the filled portal failed or were never collected.
    page = words(text_of(admin, f"{GOLD}&tab=teams"))
    assert re.search(r"Fair-share factors: \d+\.\d % of the hours of ten weeks have data\.", page)


# ---------------------------------------------------------------- what-if


def test_more_gpus_are_told_before_and_after_with_what_is_assumed(admin: Client) -> None:
    page = text_of(admin, f"{WHAT_IF}&gpus=%2B4")
    assert "+4 GPUs in gold" in words(page)
    (row,) = records_of(admin, f"{WHAT_IF}&gpus=%2B4&format=csv&table=sums")
    assert row["tier"] == "gold"
    assert float(row["capacity_after_gpu_hours"]) > float(row["capacity_gpu_hours"])
    assert float(row["denied_after_gpu_hours"]) < float(row["denied_gpu_hours"])
    assert "Nothing is preempted." in page


def test_figures_of_a_replay_are_explained(admin: Client) -> None:
    found = check_explained(admin, f"{WHAT_IF}&gpus=4")
    assert found >= {"what_if_capacity", "what_if_allocated", "what_if_jain_index", "what_if_unmet"}
    for names in ("", "&gpus=4", "&gpus=4&simulated=gold&tier=silver", "&gpus=-99&simulated=gold"):
        assert admin.get(f"/explain/what_if_capacity/?{HOURLY}{names}").status_code == 404


def test_gpus_that_move_concern_two_tiers(admin: Client) -> None:
    address = f"{WHAT_IF}&cards=2&to=silver&usable=0.5"
    rows = records_of(admin, f"{address}&format=csv&table=sums")
    assert [row["tier"] for row in rows] == ["gold", "silver"]
    assert "move 2 GPUs from gold to silver" in text_of(admin, address)


def test_work_that_moves_concerns_two_tiers(admin: Client) -> None:
    address = f"{WHAT_IF}&work=vision&work_to=silver&each=0.5"
    rows = records_of(admin, f"{address}&format=csv&table=sums")
    assert [row["tier"] for row in rows] == ["gold", "silver"]
    page = words(text_of(admin, address))
    told = "vision's work of gold asks in silver, 0.5 GPUs for each it asked for"
    assert told in unescape(page)
    assert "Work that moves to another tier runs as long there as it did." in page
    form = text_of(admin, address)
    assert 'name="each" id="if-each" value="0.5"' in form


def test_a_tier_of_which_nothing_is_known_is_not_replayed(admin: Client) -> None:
    page = text_of(
        admin, "/capacity/fairness/gold/what-if/?first=2025-01-01&last=2025-01-02&gpus=4"
    )
    assert "No data on the capacity of gold in this window" in page
    assert 'id="sums"' not in page


def test_another_entitlement_is_replayed(admin: Client) -> None:
    address = f"{WHAT_IF}&who=speech&entitled=6"
    rows = records_of(admin, f"{address}&format=csv&table=teams")
    speech = next(row for row in rows if row["team"] == "speech")
    before, after = (float(speech[f"entitlement_{mark}gpu_hours"]) for mark in ("", "after_"))
    assert after == pytest.approx(3 * before)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("gpus=many", "The GPUs to add “many” is not a number such as 4 or -2.5."),
        ("gpus=nan", "is not a number"),
        ("gpus=-100", "That cannot be: gold has 8 GPUs, 100 cannot leave it."),
        ("who=vision", "Another entitlement needs a team and a number of GPUs."),
        ("who=nobody&entitled=3", "There is no team “nobody”."),
        ("cards=3", "To move GPUs, give their number and the tier that they are to serve."),
        ("cards=3&to=gold", "There is no other tier “gold” to move GPUs to."),
        ("cards=3&to=silver&usable=7", "the usable part of a GPU is from 0 to 1, not 7"),
        ("who=vision&entitled=-1", "an entitlement cannot be negative"),
        ("work=vision", "Moving work needs whose, and the tier that it is to ask in."),
        ("work=nobody&work_to=silver", "There is no team “nobody”."),
        ("work=vision&work_to=gold", "There is no other tier “gold” to move work to."),
        ("work=vision&work_to=silver&each=0", "work that moves must ask for some GPU"),
    ],
)
def test_what_cannot_be_is_said(query: str, said: str, admin: Client) -> None:
    page = text_of(admin, f"{WHAT_IF}&{query}")
    assert said in unescape(page)
    assert 'id="sums"' not in page


def test_a_long_window_is_cut_and_that_is_said(admin: Client) -> None:
    page = words(
        text_of(admin, "/capacity/fairness/gold/what-if/?first=2025-10-01&last=2025-10-27")
    )
    assert "Replays 21 Oct – 27 Oct" in page
    assert "the last 7 days of the window, for longer ones take too long" in page
    assert "for longer ones" not in words(text_of(admin, WHAT_IF))


def test_nothing_is_replayed_until_something_is_asked(admin: Client) -> None:
    page = text_of(admin, WHAT_IF)
    assert "Enter a change to compare" in page
    assert 'id="sums"' not in page
    assert admin.get("/capacity/fairness/nowhere/what-if/").status_code == 404


# ---------------------------------------------------------------- the page of a team


def test_a_team_sees_where_it_stands(portal: Portal, admin: Client) -> None:
    page = text_of(admin, TEAM)
    gold = rows_of(page, "position")["gold"]
    # Entitlement, allocated, borrowed and lent in GPUs, over the four hours that are computed.
    assert (gold[0], gold[1], gold[2], gold[3], gold[5]) == ("4", "5", "1", "0", "4")
    query = HOURLY.replace("&", "&amp;")
    assert f'href="/capacity/teams/vision/statement/?{query}"' in page
    assert figures_of(page)["Budget used month"].startswith("0 % of 5,000 GPU-h")


def test_a_team_is_told_of_hours_that_are_in_no_sum(portal: Portal, admin: Client) -> None:
    TierFairnessHour.objects.filter(hour=MORNING).update(state="missing")
    TierFairnessHour.objects.filter(hour=MORNING + HOUR).update(watched=False)
    (gold,) = (row for row in records_of(admin, f"{TEAM}&format=csv") if row["tier"] == "gold")
    assert gold["known_hours"] == "3"
    assert int(gold["estimated_hours"]) >= 1
    assert gold["missing_hours"] == "1"


def test_the_bar_of_pages_leads_to_quotas_and_fairness(admin: Client) -> None:
    for path, name in (("/quotas/", "Limits"), ("/capacity/fairness/", "Fairness")):
        page = text_of(admin, f"{path}?{HOURLY}")
        assert re.search(rf'href="{path}[^"]*" aria-current="page">{name}</a>', page)


def test_who_waits_is_not_told_where_a_cluster_is_not_watched_any_more(admin: Client) -> None:
    said = "the pending work of a cluster of this tier is not known"
    assert said not in words(text_of(admin, f"{GOLD}&tab=queue"))
    watched = set(WatchCoverage.objects.order_by().values_list("cluster_id", flat=True))
    WatchCoverage.objects.all().delete()
    WatchCoverage.objects.bulk_create(
        WatchCoverage(cluster_id=pk, start=MORNING - 9 * HOUR, end=MORNING - 8 * HOUR)
        for pk in watched
    )
    assert said in words(text_of(admin, f"{GOLD}&tab=queue"))
    rows = records_of(admin, f"{GOLD}&format=csv&table=queue")
    assert {row["team"]: row["waiting_now"] for row in rows}["speech"] == ""
