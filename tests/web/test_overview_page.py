"""The overview: every tier beside the others."""

import csv
import html
import io
import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from django.template.loader import render_to_string
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from apps.accounts.models import User
from apps.usage.domain.amounts import Amounts
from apps.web.usage.comparison import Gpus, WindowSums
from apps.web.usage.home import Extreme, Headline
from tests.factories import Portal, make_pod, make_workload
from tests.web.conftest import DAILY, HOURLY
from tests.web.pages import text_of
from tests.web.shown import tables_of


def test_overview_shows_each_tier_with_who_waits(admin: Client) -> None:
    page = text_of(admin, f"/?{HOURLY}")
    assert 'aria-label="Tier gold"' in page
    assert 'aria-label="Tier silver"' in page
    assert "in 1 pod, the oldest for" in page  # of vision, waits for gold
    assert 'href="/tiers/gold/?first=2025-10-25&amp;last=2025-10-27#waits"' in page
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
    assert 'aria-label="Remove the filter Cluster east"' in east


def test_a_window_of_one_cluster_counts_what_waits_there(admin: Client) -> None:
    west, east = (
        tables_of(text_of(admin, f"/?{HOURLY}&cluster={name}"))["tiers"].rows
        for name in ("west", "east")
    )
    place = next(n for n, cell in enumerate(west[0]) if "pods" in cell.text)
    assert [row[place].text for row in west[1:]] == ["1", "0"]
    assert [row[place].text for row in east[1:]] == ["0", "0"]


# ---------------------------------------------------------------- at a glance


def words_of(page: str, start: str) -> str:
    """Return the text of the element whose tag begins with `start`."""
    tag = re.findall(rf"<{start}[^>]*>(.*?)</{start.split()[0]}>", page, re.DOTALL)[0]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", tag)).split())


def test_the_headline_says_what_the_tables_say(admin: Client) -> None:
    page = text_of(admin, f"/?{DAILY}&compare=no")
    text = admin.get(f"/?{DAILY}&format=csv&table=tiers").content.decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    wasted = sum(
        float(row[f"{cause}_gpu_hours"])
        for row in rows
        for cause in ("not_running", "idle", "underused")
    )
    said = words_of(page, 'p class="headline-words"')
    assert said.startswith("Of 24 GPUs in 2 tiers, 11 were allocated on average.")
    assert f"{wasted:,.0f} GPU-hours were unused" in said
    assert "2 hours of the window could not be counted." in page


def test_several_tiers_are_named_rather_than_blended(admin: Client) -> None:
    more = words_of(text_of(admin, f"/?{DAILY}"), 'p class="headline-more"')
    assert more.startswith(
        "Fullest and least used is gold: 75.0 % allocated, 48.8 % GPU utilization. "
    )


def test_the_fullest_and_the_least_used_tier_have_a_sentence_each() -> None:
    zero = Amounts()
    given = Headline(
        sums=WindowSums(zero, Gpus(24.0, 11.0, 5.0, 6.0)),
        tiers=2,
        capacity_gpus="24",
        allocated_gpus="11",
        not_used_gpus="6",
        allocation_ratio=None,
        utilization_ratio=None,
        not_used=0,
        not_used_gpu_hours="0",
        not_used_change=None,
        fullest=Extreme("gold", "/tiers/gold/", 0.75),
        least_busy=Extreme("silver", "/tiers/silver/", 0.4),
        limits=(),
    )
    text = render_to_string(
        "overview/_headline.html", {"headline": given, "reading": {"query": ()}}
    )
    assert words_of(text, 'p class="headline-more"') == (
        "Fullest is gold, 75.0 % allocated. Least used is silver: 40.0 % GPU utilization."
    )


def test_one_tier_has_its_ratios_in_the_headline(admin: Client) -> None:
    page = text_of(admin, f"/?{DAILY}&cluster=east&compare=no")
    row = next(
        csv.DictReader(
            io.StringIO(
                admin.get(
                    f"/tiers/silver/?{DAILY}&cluster=east&format=csv&table=models"
                ).content.decode()
            )
        )
    )
    busy = f"{float(row['utilization_ratio']) * 100:.1f} %"
    assert words_of(page, 'p class="headline-words"').startswith(
        f"Of 8 GPUs, 37.5 % were allocated; GPU utilization was {busy}."
    )


def test_a_period_before_without_facts_gives_no_comparison_and_says_why(admin: Client) -> None:
    page = text_of(admin, f"/?{DAILY}")
    assert "No comparison: only 0 of 96 hours of the 4 days before have facts." in page
    assert "points more" not in page


def test_what_changed_is_said_in_words_beside_the_arrow(admin: Client) -> None:
    page = text_of(admin, "/?first=2025-10-27&last=2025-10-27")
    changes = re.findall(r'<small class="change[^"]*">(.*?)</small>', page, re.DOTALL)
    texts = [" ".join(re.sub(r"<[^>]+>", " ", change).split()) for change in changes]
    assert texts
    for text in texts:
        assert re.fullmatch(
            r"([▲▼] [\d.]+ (points|%) (more|less) than|= about the same as) in the day before", text
        )


def test_the_largest_waste_names_workloads_of_the_readers_teams_alone(
    portal: Portal, signed_in: Callable[[User], Client]
) -> None:
    for person, there, hidden in (
        (portal.ben, "/workloads/west/vision/Job/train/", "notes"),
        (portal.dan, "/workloads/west/speech/StatefulSet/notes/", "train"),
    ):
        page = text_of(signed_in(person), f"/?{DAILY}")
        section = page[page.index('id="waste"') : page.index('id="now"')]
        assert f'href="{there}?' in section
        assert hidden not in section


# ---------------------------------------------------------------- now


def now_part(client: Client, query: str = "card=gold&card=silver") -> str:
    response = client.get(f"/?{HOURLY}&part=now&{query}", headers={"HX-Request": "true"})
    assert response.status_code == 200
    return response.content.decode()


def test_what_waits_now_comes_alone(admin: Client) -> None:
    page = text_of(admin, f"/?{HOURLY}")
    (address,) = re.findall(r'hx-get="([^"]*part=now[^"]*)"', page)
    part = admin.get(html.unescape(address), headers={"HX-Request": "true"}).content.decode()
    assert "<h1" not in part
    assert 'id="now"' in part
    targets = re.findall(r'id="(waiting-\w+)" hx-swap-oob', part)
    assert len(targets) == 2
    for target in targets:
        assert f'id="{target}"' in page


@pytest.mark.parametrize(("person", "named"), [("ben", True), ("dan", False), ("cleo", True)])
def test_pods_that_wait_are_named_to_their_own_people(
    person: str, named: bool, portal: Portal, signed_in: Callable[[User], Client]
) -> None:
    part = now_part(signed_in(getattr(portal, person)))
    assert ("train-2" in part) is named
    assert "in 1 pod, the oldest for" in part


def test_the_minutes_news_need_few_queries_however_many_wait(
    portal: Portal, admin: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    work = make_workload(portal.clusters[0], "vision", "more")
    for n in range(30):
        make_pod(work, f"more-{n}", created_at=datetime(2025, 10, 21, tzinfo=UTC))
    with django_assert_max_num_queries(12):
        now_part(admin)


def test_the_address_of_the_news_gives_the_whole_page_without_htmx(admin: Client) -> None:
    assert "<h1" in text_of(admin, f"/?{HOURLY}&part=now")


def test_hostile_tier_names_in_the_address_stay_text(admin: Client) -> None:
    part = now_part(admin, 'card=%3Cscript%3E"&card=%00')
    assert "<script" not in part


def test_the_waste_of_a_very_long_window_is_that_of_its_last_days(admin: Client) -> None:
    long = text_of(admin, "/?first=2025-01-01&last=2025-10-27")
    assert "Unused GPU-hours in the last 30 days of this window" in long
    assert "Unused GPU-hours in this window" in text_of(admin, "/?first=2025-09-01&last=2025-10-27")
    month = text_of(admin, "/?first=2025-09-28&last=2025-10-27")
    names = [
        re.findall(r'id="waste".*?</section>', page, re.DOTALL)[0].count("<li>")
        for page in (long, month)
    ]
    assert names[0] == names[1] > 0
