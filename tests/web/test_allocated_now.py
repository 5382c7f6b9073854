"""What a workload held, beside the period before."""

import html
import re

from django.test import Client

from tests.web.conftest import HOURLY
from tests.web.pages import text_of

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


def test_each_tier_has_its_own_facts_with_changes(admin: Client) -> None:
    shown = facts(holding(text_of(admin, f"{WORKLOAD}?{LAST_DAY}")))
    assert list(shown) == ["gold", "silver"]
    assert "avg 4 GPUs = no change compared with the previous day" in shown["gold"]
    for words in shown.values():
        for fact in ("Allocated", "Utilization", "Unused allocation"):
            assert fact in words
        assert "Capacity" not in words
        assert words.count("compared with the previous day") == 3


def test_several_tiers_are_summed_and_never_blended_into_a_ratio(admin: Client) -> None:
    part = holding(text_of(admin, f"{WORKLOAD}?{LAST_DAY}"))
    (sums,) = re.findall(r'<p class="holding-sum">(.*?)</p>', part, re.S)
    assert "144 GPU-hours" in sums
    assert "6 GPUs on average" in sums
    words = re.sub(r"<[^>]+>", "", sums)
    assert "%" not in re.sub(r"[+−]\d+(\.\d)? % compared", "", words)


def test_one_tier_alone_needs_no_sum(admin: Client) -> None:
    part = holding(text_of(admin, f"{WORKLOAD}?{LAST_DAY}&tier=gold"))
    assert list(facts(part)) == ["gold"]
    assert "holding-sum" not in part


def test_the_figures_are_those_that_their_explanations_show(admin: Client) -> None:
    part = holding(text_of(admin, f"{WORKLOAD}?{LAST_DAY}&tier=gold"))
    links = [html.unescape(link) for link in re.findall(r'href="(/explain/[^"]+)"', part)]
    assert len(links) == 4
    (shown,) = re.findall(r'title="([\d.,]+) GPU-hours">[^<]+</a> <span class="of">GPU-h', part)[:1]
    explained = text_of(admin, links[0])
    assert shown.replace(",", "") in explained.replace(",", "")
    for link in links:
        assert "is not there" not in text_of(admin, link)


def test_the_comparison_can_be_switched_off(admin: Client) -> None:
    page = text_of(admin, f"{WORKLOAD}?{LAST_DAY}&compare=no")
    assert 'id="compare"' in page
    assert "in the previous day" not in holding(page)


def test_too_few_facts_before_are_told_and_not_compared(admin: Client) -> None:
    page = text_of(admin, f"{WORKLOAD}?{HOURLY}")  # facts begin a day before
    assert "No comparison: only 24 of 72 hours" in holding(page)
    assert "as in" not in holding(page)


def test_nothing_held_has_no_facts(admin: Client) -> None:
    assert holding(text_of(admin, f"{WORKLOAD}?first=2025-09-01&last=2025-09-02")) == ""
