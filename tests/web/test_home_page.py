"""Home by role: of administrators, of leads and members, of finance, and of who has no team."""

import csv
import html
import io
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.core.cache import cache
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from apps.accounts.domain.identity import Role
from apps.accounts.models import User
from apps.pending.models import Episode, RefreshState
from apps.quota_requests.models import ChangeRequest
from apps.web.components.drawings.panels import Panel, SmallMultiples, TimeAxis, small_multiples
from apps.web.usage import team_figures
from tests.factories import Portal, make_pod, make_user, make_workload
from tests.quota_requests.requests import make_request
from tests.web.conftest import DAILY, HOURLY
from tests.web.pages import records_of, text_of
from tests.web.shown import figures_of, tables_of
from tests.web.test_devices_page import words

SignIn = Callable[[User], Client]


# ---------------------------------------------------------------- administrators


def test_tiers_are_never_summed_into_one_row(admin: Client) -> None:
    rows = tables_of(text_of(admin, f"/?{HOURLY}"))["tiers"].rows
    assert [row[0].text.strip() for row in rows] == ["Tier", "gold", "silver"]


def test_the_file_of_the_tiers_says_what_is_shown(admin: Client) -> None:
    shown = tables_of(text_of(admin, f"/?{HOURLY}"))["tiers"].rows[1:]
    for row, record in zip(
        shown, records_of(admin, f"/?{HOURLY}&format=csv&table=tiers"), strict=True
    ):
        assert row[0].text.strip() == record["tier"]
        for place, key in ((1, "allocation_ratio"), (2, "utilization_ratio")):
            assert row[place].text.strip() == f"{float(record[key]) * 100:.0f}"
        unused = record["not_busy_gpus"]
        assert float(row[3].text.strip() or 0) == pytest.approx(float(unused or 0), abs=0.05)
        overcommitment = record["overcommitment_ratio"]
        assert (row[5].text.strip() == "–") == (overcommitment == "")
        assert row[6].text.strip() == record["waiting_now_pods"]


def test_the_ledger_of_every_table_adds_up(admin: Client) -> None:
    text = admin.get(f"/?{HOURLY}&format=csv&table=tiers").content.decode()
    for row in csv.DictReader(io.StringIO(text)):
        held = ("busy", "underused", "idle", "not_running", "unmeasured")
        parts = sum(Decimal(row[f"{name}_gpu_hours"]) for name in held)
        assert parts == Decimal(row["allocated_gpu_hours"])
        free = Decimal(row["unallocated_gpu_hours"]) + Decimal(row["unhealthy_gpu_hours"])
        free += Decimal(row.get("planned_outage_gpu_hours", 0))
        assert parts + free == Decimal(row["capacity_gpu_hours"])


def test_a_cluster_can_be_picked_and_stays_picked(admin: Client) -> None:
    def capacity(query: str) -> list[str]:
        rows = records_of(admin, f"/?{HOURLY}{query}&format=csv&table=tiers")
        return [row["capacity_gpu_hours"] for row in rows if row["tier"] == "silver"]

    east = text_of(admin, f"/?{HOURLY}&cluster=east")
    assert capacity("") != capacity("&cluster=east")  # silver has nodes on both clusters
    assert "/capacity/tiers/silver/?first=2025-10-25&amp;last=2025-10-27&amp;cluster=east" in east
    assert 'aria-label="Remove the filter Cluster east"' in east


def test_a_window_of_one_cluster_counts_what_is_pending_there(admin: Client) -> None:
    for cluster, pods in (("west", ["1", "0"]), ("east", ["0", "0"])):
        rows = records_of(admin, f"/?{HOURLY}&cluster={cluster}&format=csv&table=tiers")
        assert sorted((row["waiting_now_pods"] for row in rows), reverse=True) == pods


def test_the_figures_say_what_the_tables_say(admin: Client) -> None:
    figures = figures_of(text_of(admin, f"/?{DAILY}&compare=no"))
    assert list(figures) == [
        *("Capacity average", "Allocated average", "Utilization average"),
        *("Pending now", "Approvals", "Data issues"),
    ]
    assert figures["Capacity average"] == "24 GPUs"
    rows = records_of(admin, f"/?{DAILY}&format=csv&table=tiers")
    sums = {
        name: sum(Decimal(row[f"{name}_gpu_hours"]) for row in rows)
        for name in ("allocated", "capacity")
    }
    assert figures["Allocated average"] == f"{sums['allocated'] / sums['capacity'] * 100:.0f} %"
    assert "2 hours not collected" in text_of(admin, f"/?{DAILY}")


def test_a_period_before_without_data_gives_no_comparison(admin: Client) -> None:
    page = text_of(admin, f"/?{DAILY}")
    assert "pp" not in figures_of(page)["Utilization average"]


def test_the_flow_is_read_when_its_tab_is_opened(admin: Client) -> None:
    assert "Capacity to active" not in text_of(admin, f"/?{HOURLY}")
    assert "Capacity to active" in text_of(admin, f"/?{HOURLY}&tab=flow")


# ---------------------------------------------------------------- now


def now_part(client: Client, query: str = "card=gold&card=silver") -> str:
    response = client.get(f"/?{HOURLY}&part=now&{query}", headers={"HX-Request": "true"})
    assert response.status_code == 200
    return response.content.decode()


def test_what_is_pending_now_comes_alone(admin: Client) -> None:
    page = text_of(admin, f"/?{HOURLY}")
    (address,) = re.findall(r'hx-get="([^"]*part=now[^"]*)"', page)
    part = admin.get(html.unescape(address), headers={"HX-Request": "true"}).content.decode()
    assert "<h1" not in part
    assert 'id="now"' in part
    targets = re.findall(r'id="([\w-]+)" hx-swap-oob', part)
    assert len(targets) == 3  # the figure, and the cell of each tier
    for target in targets:
        assert f'id="{target}"' in page


def test_the_minutes_news_need_few_queries_however_many_are_pending(
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


# ---------------------------------------------------------------- leads and members


@pytest.mark.parametrize("name", ["ada", "ben"])
def test_a_team_reads_its_four_figures(name: str, portal: Portal, signed_in: SignIn) -> None:
    page = text_of(signed_in(getattr(portal, name)), f"/?{HOURLY}")
    figures = figures_of(page)
    # Nothing has a price here: what is unused is told in GPUs.
    assert list(figures) == [
        *("Allocated now", "Utilization average", "Pending now", "Unused average")
    ]
    assert figures["Unused average"].endswith("GPUs no price")
    assert figures["Allocated now"].startswith("7 ")
    assert 'href="/capacity/teams/vision/' in page
    assert "speech" not in re.sub(r"<select.*?</select>", "", page, flags=re.DOTALL)


def test_unused_workloads_are_of_the_readers_teams_alone(portal: Portal, signed_in: SignIn) -> None:
    for person, there, hidden in (
        (portal.ben, "/workloads/west/vision/Job/train/", "notes"),
        (portal.dan, "/workloads/west/speech/StatefulSet/notes/", "train"),
    ):
        page = text_of(signed_in(person), f"/?{DAILY}")
        assert f'href="{there}?' in page
        assert hidden not in page


def test_details_of_another_team_stay_hidden_on_its_home(portal: Portal, signed_in: SignIn) -> None:
    client = signed_in(portal.dan)
    for tab in ("", "&tab=workloads", "&tab=pending", "&tab=quotas", "&tab=budgets"):
        page = text_of(client, f"/?{DAILY}&team=vision{tab}")
        for hidden in ("train", "vision-prod", "$"):
            assert hidden not in page, tab


@pytest.mark.parametrize("tab", ["workloads", "pending", "quotas", "budgets"])
def test_a_list_is_read_when_its_tab_is_opened(tab: str, portal: Portal, signed_in: SignIn) -> None:
    client = signed_in(portal.ada)
    assert tables_of(text_of(client, f"/?{DAILY}")) == {}
    page = text_of(client, f"/?{DAILY}&tab={tab}")
    assert 'aria-current="true"' in page
    if tab == "quotas":
        assert "requests.nvidia.com/gpu" in page
    else:
        assert len(tables_of(page)[tab].rows) > 1


def test_homes_and_the_pending_page_count_the_same_workloads(
    portal: Portal, signed_in: SignIn
) -> None:
    for person, count in ((portal.ben, 2), (portal.dan, 1), (portal.ada, 2)):
        client = signed_in(person)
        of_home = figures_of(now_part(client, ""))["Pending now"]
        assert of_home.startswith(f"{count} workload{'' if count == 1 else 's'} oldest"), person
        assert figures_of(text_of(client, "/pending/"))["Pending now"] == of_home


def test_bookings_of_the_week_are_on_the_homes_of_those_who_see_them(
    portal: Portal, signed_in: SignIn
) -> None:
    now = timezone.now()

    def booked(name: str, after: str, begins: timedelta, state: str = "scheduled") -> int:
        return make_request(
            portal,
            name=name,
            after=after,
            tiers=["gold"],
            state=state,
            starts_at=now + begins,
            until=now + begins + timedelta(days=3),
        ).pk

    pk = booked("gpus", "10", timedelta(days=2))
    booked("asked", "11", timedelta(days=2), "submitted")
    booked("late", "12", timedelta(days=9))
    for person, subject in ((portal.ada, "gold"), (portal.cleo, "vision")):
        page = words(text_of(signed_in(person), "/"))
        assert re.search(rf"{subject} 2 GPUs booked from \d", page), subject
        assert "3 GPUs booked" not in page, "it is only asked for"
        assert "4 GPUs booked" not in page, "it begins later"
    assert f"/quotas/requests/{pk}/" in text_of(signed_in(portal.ada), "/")
    assert "booked" not in words(text_of(signed_in(portal.dan), "/"))


def test_a_booking_that_runs_says_until_when(portal: Portal, signed_in: SignIn) -> None:
    now = timezone.now()
    begun, until = now - timedelta(days=1), now + timedelta(days=1)
    make_request(
        portal, tiers=["gold"], state="applied", starts_at=begun, applied_at=begun, until=until
    )
    assert "2 GPUs booked until" in words(text_of(signed_in(portal.ada), "/"))
    # It asks nothing of administrators, nor of its team while it runs on.
    assert "booked until" not in words(text_of(signed_in(portal.cleo), "/"))
    ChangeRequest.objects.update(until=now + timedelta(days=8))
    assert "booked until" not in words(text_of(signed_in(portal.ada), "/"))


# ---------------------------------------------------------------- others


def test_who_has_no_team_reads_one_cause_and_one_next_step(
    portal: Portal, signed_in: SignIn
) -> None:
    page = text_of(signed_in(make_user("eve")), f"/?{HOURLY}")
    assert "You are on no team. Ask an administrator to add you." in page
    assert "key-figure" not in page


def test_finance_reads_the_month_and_what_its_close_lacks(
    portal: Portal, signed_in: SignIn
) -> None:
    page = text_of(signed_in(portal.finn), "/")
    assert "<h1" in page
    assert "No day has a cost yet." in page


@pytest.mark.parametrize(("name", "most"), [("cleo", 17), ("ada", 20), ("ben", 20), ("finn", 10)])
def test_the_home_of_each_role_needs_few_queries(
    name: str,
    most: int,
    portal: Portal,
    signed_in: SignIn,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    client = signed_in(getattr(portal, name))
    cache.clear()
    with django_assert_max_num_queries(most):
        text_of(client, f"/?{DAILY}")


def test_a_role_and_not_a_team_decides_for_administrators_and_finance(
    portal: Portal, signed_in: SignIn
) -> None:
    boss = make_user("boss", Role.ADMIN, leads=[portal.vision])
    assert "Needs attention" in text_of(signed_in(boss), f"/?{HOURLY}")


@pytest.mark.parametrize("person", ["ada", "cleo"])
def test_pending_work_that_no_cluster_was_checked_for_is_no_zero(
    person: str, portal: Portal, signed_in: SignIn
) -> None:
    Episode.objects.all().delete()
    RefreshState.objects.all().delete()
    page = signed_in(getattr(portal, person)).get("/").content.decode()
    assert "Not checked yet: east, west." in page
    assert "Nothing is pending." not in page


def test_hours_of_one_local_time_in_autumn_have_each_their_own_bar(
    portal: Portal, signed_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[Panel, TimeAxis]] = []

    def noted(name: str, title: str, panels: Sequence[Panel], axis: TimeAxis) -> SmallMultiples:
        drawn.extend((panel, axis) for panel in panels)
        return small_multiples(name, title, panels, axis)

    monkeypatch.setattr(team_figures, "small_multiples", noted)
    text_of(signed_in(portal.ada), f"/?{HOURLY}")
    ((panel, axis),) = drawn
    # At 02:00 in Berlin, twice on 26 October, pods ran as in the hours before and after.
    first = axis.periods.index(datetime(2025, 10, 25, 23, tzinfo=UTC))
    before, *twice, after = panel.allocated[first : first + 4]
    assert before
    assert [before, *twice, after] == [before] * 4
