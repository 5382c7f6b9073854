"""The page of a team: figures, tabs, namespaces and workloads; and the list of teams."""

import html
import re
from collections.abc import Callable

import pytest
from django.test import Client

from apps.accounts.models import User
from tests.factories import Portal
from tests.web.conftest import HOURLY
from tests.web.pages import records_of, text_of
from tests.web.shown import figures_of, tables_of, words_of

SignIn = Callable[[User], Client]
TEAM = "/capacity/teams/vision/"
LAST_DAY = "first=2025-10-27&last=2025-10-27"


def tabs_of(page: str) -> list[str]:
    return re.findall(r'class="tab" id="tab-(\w+)"', page)


def test_a_team_reads_its_figures_first(admin: Client) -> None:
    page = text_of(admin, f"{TEAM}?{LAST_DAY}")
    figures = figures_of(page)
    assert list(figures) == [
        *("Allocated now", "Utilization average", "Pending now", "Unused average"),
        "Budget used month",
    ]
    assert figures["Allocated now"].startswith("7 ")
    assert figures["Pending now"].startswith("2 workloads")
    (ratio,) = re.findall(r"^\d+ %", figures["Utilization average"])
    rows = records_of(admin, f"{TEAM}?{LAST_DAY}&format=csv&table=tiers")
    measured = sum(
        float(row["allocated_gpu_hours"])
        - float(row["not_running_gpu_hours"])
        - float(row["unmeasured_gpu_hours"])
        for row in rows
    )
    used = sum(float(row["busy_gpu_hours"]) for row in rows)
    assert ratio == f"{100 * used / measured:.0f} %"
    (link,) = re.findall(r'href="(/explain/[^"]*utilization_ratio[^"]*team=vision[^"]*)"', page)[:1]
    assert f"{100 * used / measured:.1f}" in text_of(admin, html.unescape(link))


def test_tiers_share_one_scale_beside_the_dearest_unused_workloads(admin: Client) -> None:
    page = text_of(admin, f"{TEAM}?{HOURLY}")
    panels = re.findall(r'<ul class="panels">(.*?)</ul>', page, re.S)[0]
    assert "gold" in words_of(panels)
    actions = re.findall(r'<ol class="actions">(.*?)</ol>', page, re.S)[0]
    assert 'href="/workloads/west/vision/Job/train/' in actions
    assert "GPU-h unused" in actions


def test_a_filter_that_shares_do_not_take_is_told(admin: Client) -> None:
    told = "only the filter of tiers narrows it"
    assert told in text_of(admin, f"{TEAM}?{HOURLY}&cluster=west")
    assert told not in text_of(admin, f"{TEAM}?{HOURLY}&tier=gold")


def test_who_is_not_on_the_team_sees_its_sums(portal: Portal, signed_in: SignIn) -> None:
    own = text_of(signed_in(portal.ben), f"{TEAM}?{LAST_DAY}")
    seen = text_of(signed_in(portal.dan), f"{TEAM}?{LAST_DAY}")
    assert tabs_of(own) == ["overview", "workloads", "pending", "quotas", "cost", "fairness"]
    assert tabs_of(seen) == ["overview", "fairness"]
    mine, others = figures_of(own), figures_of(seen)
    for name in ("Allocated now", "Utilization average", "Budget used month"):
        assert others[name] == mine[name]
    assert others["Pending now"].endswith("GPUs")
    assert "workloads" not in others["Pending now"]
    assert tables_of(seen)["tiers"] == tables_of(own)["tiers"]
    assert "Top unused workloads" not in seen


@pytest.mark.parametrize("tab", ["workloads", "pending", "quotas", "cost"])
def test_tabs_of_another_team_are_not_there(tab: str, portal: Portal, signed_in: SignIn) -> None:
    page = text_of(signed_in(portal.dan), f"{TEAM}?{HOURLY}&tab={tab}")
    for hidden in ("vision-prod", "train", "team-quotas", 'id="pending"', "$"):
        assert hidden not in page
    assert 'id="tiers"' in page


def test_a_comparison_without_facts_is_told_and_not_made(admin: Client) -> None:
    page = text_of(admin, f"{TEAM}?{HOURLY}")  # facts begin a day before
    assert "No comparison: only 24 of 72 hours" in page
    assert "key-change" not in page


def test_the_list_of_teams_holds_allocation_against_entitlement(admin: Client) -> None:
    rows = {row["team"]: row for row in records_of(admin, "/capacity/teams/?format=csv")}
    assert set(rows) == {"vision", "speech", "unassigned"}
    assert rows["vision"]["allocated_now_gpus"] == "7"
    assert rows["unassigned"]["entitlement_ratio"] == ""
    narrowed = records_of(admin, f"/capacity/teams/?{HOURLY}&cluster=west&format=csv")
    assert {row["allocated_now_gpus"] for row in narrowed} == {""}
    assert "are not narrowed by these filters" in text_of(admin, "/capacity/teams/?cluster=west")


def test_namespaces_narrow_the_workloads(admin: Client) -> None:
    rows = tables_of(
        text_of(admin, f"/capacity/teams/vision/?tab=workloads&{HOURLY}&namespace=vision-prod")
    )
    assert [row[2].text for row in rows["workloads"].rows[1:]] == ["Deployment/serve"]
    every = tables_of(text_of(admin, f"/capacity/teams/vision/?tab=workloads&{HOURLY}"))[
        "workloads"
    ].rows
    assert every[-1][0].text == "Total"


def test_workloads_come_in_pages_and_the_total_is_over_all(admin: Client) -> None:
    whole = tables_of(text_of(admin, f"/capacity/teams/vision/?tab=workloads&{HOURLY}"))[
        "workloads"
    ].rows
    seen = []
    for number in range(1, len(whole) - 1):
        address = f"/capacity/teams/vision/?tab=workloads&{HOURLY}&per_page=1&page={number}"
        page = tables_of(text_of(admin, address))["workloads"].rows
        assert [c.text for c in page[-1]] == [c.text for c in whole[-1]]
        seen += page[1:-1]
    assert [[c.text for c in row] for row in seen] == [[c.text for c in row] for row in whole[1:-1]]


def test_no_line_blends_the_utilization_of_several_tiers(admin: Client) -> None:
    shown = tables_of(text_of(admin, f"/capacity/teams/vision/?tab=workloads&{HOURLY}"))
    head = [cell.text.split()[0] for cell in shown["workloads"].rows[0]]
    *lines, total = shown["workloads"].rows[1:]
    place = head.index("Utilization")
    assert len({line[head.index("Tier")].text for line in lines}) == 2
    assert total[place].text == "–"
    assert "–" not in {line[place].text for line in lines}
    assert [cell.text.split()[0] for cell in shown["namespaces"].rows[0]][:3] == [
        "Cluster",
        "Namespace",
        "Tier",
    ]
