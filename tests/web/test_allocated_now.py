"""What a team and a workload held, beside the period before."""

import html
import re
from collections.abc import Callable

import pytest
from django.test import Client

from apps.accounts.models import User
from tests.factories import Portal
from tests.web.conftest import HOURLY
from tests.web.pages import records_of, text_of

SignIn = Callable[[User], Client]
TEAM = "/capacity/teams/vision/"
WORKLOAD = "/workloads/west/vision/Job/train/"
LAST_DAY = "first=2025-10-27&last=2025-10-27"


def holding(page: str) -> str:
    """Return the part of a page that says what was held; empty without one."""
    found = re.findall(r'<section class="holding".*?</section>', page, re.S)
    return found[0] if found else ""


def facts(part: str) -> dict[str, str]:
    """Return the words of the facts by tier."""
    cards = re.findall(r'aria-label="On tier ([^"]+)">(.*?)</article>', part, re.S)
    return {
        tier: " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split()) for tier, body in cards
    }


@pytest.mark.parametrize(("path", "gold"), [(TEAM, "5"), (WORKLOAD, "4")], ids=["team", "workload"])
def test_each_tier_has_its_own_facts_with_changes(path: str, gold: str, admin: Client) -> None:
    shown = facts(holding(text_of(admin, f"{path}?{LAST_DAY}")))
    assert list(shown) == ["gold", "silver"]
    assert f"avg {gold} GPUs = about the same as in the day before" in shown["gold"]
    for words in shown.values():
        for fact in ("Allocated", "Utilization", "Unused allocation"):
            assert fact in words
        assert "Capacity" not in words
        assert words.count("in the day before") == 3


@pytest.mark.parametrize("path", [TEAM, WORKLOAD])
def test_several_tiers_are_summed_and_never_blended_into_a_ratio(path: str, admin: Client) -> None:
    part = holding(text_of(admin, f"{path}?{LAST_DAY}"))
    (sums,) = re.findall(r'<p class="holding-sum">(.*?)</p>', part, re.S)
    gpus = 7 if path == TEAM else 6
    assert f"{gpus * 24} GPU-hours" in sums
    assert f"{gpus} GPUs on average" in sums
    words = re.sub(r"<[^>]+>", "", sums)
    assert "%" not in re.sub(r"\d+(\.\d)? % (more|less)", "", words)


def test_one_tier_alone_needs_no_sum(admin: Client) -> None:
    part = holding(text_of(admin, f"{TEAM}?{LAST_DAY}&tier=gold"))
    assert list(facts(part)) == ["gold"]
    assert "holding-sum" not in part


@pytest.mark.parametrize("path", [TEAM, WORKLOAD])
def test_the_figures_are_those_that_their_explanations_show(path: str, admin: Client) -> None:
    part = holding(text_of(admin, f"{path}?{LAST_DAY}&tier=gold"))
    links = [html.unescape(link) for link in re.findall(r'href="(/explain/[^"]+)"', part)]
    assert len(links) == 4
    (shown,) = re.findall(r'title="([\d.,]+) GPU-hours">[^<]+</a> <span class="of">GPU-h', part)[:1]
    explained = text_of(admin, links[0])
    assert shown.replace(",", "") in explained.replace(",", "")
    for link in links:
        assert "is not there" not in text_of(admin, link)


def test_the_comparison_can_be_switched_off(admin: Client) -> None:
    page = text_of(admin, f"{TEAM}?{LAST_DAY}&compare=no")
    assert 'id="compare"' in page
    assert "in the day before" not in holding(page)


def test_too_few_facts_before_are_told_and_not_compared(admin: Client) -> None:
    page = text_of(admin, f"{TEAM}?{HOURLY}")  # facts begin a day before
    assert "No comparison: only 24 of 72 hours" in holding(page)
    assert "as in" not in holding(page)


def test_who_sees_sums_only_sees_these(portal: Portal, signed_in: SignIn) -> None:
    own = holding(text_of(signed_in(portal.ben), f"{TEAM}?{LAST_DAY}"))
    seen = holding(text_of(signed_in(portal.dan), f"{TEAM}?{LAST_DAY}"))
    assert facts(seen) == facts(own)


def test_nothing_held_has_no_facts(admin: Client) -> None:
    assert holding(text_of(admin, f"{TEAM}?first=2025-09-01&last=2025-09-02")) == ""


def test_the_facts_agree_with_the_table_of_tiers(admin: Client) -> None:
    rows = records_of(admin, f"{TEAM}?{LAST_DAY}&format=csv&table=tiers")
    shown = facts(holding(text_of(admin, f"{TEAM}?{LAST_DAY}")))
    for row in rows:
        ratio = f"Utilization {float(row['utilization_ratio']) * 100:.0f} %"
        assert ratio in shown[row["tier"]]
