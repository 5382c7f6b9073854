"""Planned outages from their announcement to capacity, fairness, waste, page and API."""

import csv
import io
import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.db.models import F
from django.test import Client

from apps.accounts.domain.audit import content_of
from apps.accounts.models import AuditEntry, Role, User
from apps.accounts.permissions import EVERYTHING, NotAllowed
from apps.clusters.domain.window import Window, day_of
from apps.clusters.models import Cluster
from apps.clusters.selectors import report
from apps.clusters.services import TierHistory, snapshot_cluster
from apps.costs.domain.costing import Basis, Policy
from apps.costs.services import price_hours
from apps.costs.services.evidence.hours import hours_evidence
from apps.costs.services.evidence.offers import PricesInForce, offer_book
from apps.costs.services.evidence.span import span_of
from apps.fairness.services.hour_inputs import read_hour
from apps.operations.services import month_report, month_report_file
from apps.usage.domain.outages import NodeRest, OutagePart, OutageSpan, outage_part
from apps.usage.models import NodeHour, OutageHour, PlannedOutage, TierDay, TierHour
from apps.usage.selectors import OutageState, outage_rows
from apps.usage.services import (
    OutageInput,
    OutageRefused,
    cancel_outage,
    collect_window,
    plan_outages,
)
from apps.web.components.formats import Format, shown
from simulator.fleet import Sharing
from simulator.machines import A100, gpu_node
from simulator.scenarios.base import Team, Tier
from tests.factories import make_user
from tests.served_lab import served_lab
from tests.shared_rows import shared
from tests.simulator.small import ORIGIN, Small, job, pod
from tests.usage.served_models import load_served
from tests.web.appearances import is_exhaustive

START = datetime.fromtimestamp(ORIGIN, UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
NOW = START + 3 * HOUR + 15 * MINUTE
NANO = 10**9


@pytest.mark.parametrize(
    ("rest", "spans", "found"),
    [
        ((8, 0, 8, 4), [], (0, 0, 0)),
        # Half of it in each half of the hour: from 00:15 to 00:45.
        ((8, 0, 8, 4), [(900, 2700)], (0, 4, 2)),
        ((8, 8, 0, 4), [(900, 2700)], (4, 0, 2)),
        # Pods go on: only what nothing held is away.
        ((8, 0, 1, 0.5), [(0, 3600)], (0, 1, 0.5)),
        # What was free before it began is not what it took.
        ((8, 0, 1, 0.5), [(1800, 3600)], (0, 0.5, 0)),
        # A pod held all of it in the first half.
        ((8, 0, 4, 0), [(0, 3600)], (0, 4, 0)),
        ((8, 1, 4, 2), [(1800, 9000)], (1, 2, 0)),
        # Two that overlap are no longer than both together.
        ((8, 8, 0, 4), [(0, 1800), (900, 1800)], (4, 0, 4)),
    ],
)
def test_an_outage_takes_what_nothing_held_for_as_long_as_it_lasts(
    rest: tuple[float, float, float, float],
    spans: list[tuple[float, float]],
    found: tuple[float, float, float],
) -> None:
    of = NodeRest(*(round(amount * NANO) for amount in rest))
    part = outage_part(of, [OutageSpan(*span) for span in spans], 0.0)
    assert part == OutagePart(*(round(amount * NANO) for amount in found))


@pytest.fixture
def admin(db: None) -> User:
    return make_user("root-admin", Role.ADMIN)


@contextmanager
def served() -> Iterator[Small]:
    """Serve one node of four GPUs, of which a job holds one; two hours and more have passed."""
    made = Small([pod("train-0", bound=0)], [job()])
    made.teams = [Team("vision", ("vision",), 4, "CC-1")]
    with served_lab(made, NOW.timestamp()) as url:
        load_served(made, url, now=NOW)
        snapshot_cluster("lab", now=NOW)
        yield made


@pytest.fixture
def lab(db: None) -> Iterator[Small]:
    with served() as made:
        yield made


def announce(admin: User, start: datetime, end: datetime, *, node: str = "one") -> int:
    asked = OutageInput("lab", node, start, end, "Layout change")
    return plan_outages(admin, [asked], now=START - MINUTE)


def test_what_was_announced_is_in_no_waste_and_no_fair_share(lab: Small, admin: User) -> None:
    announce(admin, START + 30 * MINUTE, START + 90 * MINUTE)
    window = Window(START, START + 2 * HOUR)
    collect_window("lab", window, now=NOW)
    # Three of four GPUs are free, in half of each hour.
    part = 3 * NANO // 2
    hours = OutageHour.objects.order_by("hour")
    assert [row.unhealthy + row.unallocated for row in hours] == [part, part]
    assert [row.first for row in hours] == [0, part]
    ledger = NodeHour.objects.get(hour=START)
    assert (ledger.capacity, ledger.planned_outage) == (4 * NANO, part)
    assert (ledger.unhealthy + ledger.unallocated, ledger.allocated) == (part, NANO)
    tier = TierHour.objects.get(hour=START).tier_id
    halves = read_hour(Window.hour(START)).capacity[tier]
    # What the pod holds in the second half is left in it.
    assert (halves.whole, halves.first) == (4 * NANO - part, 2 * NANO)
    (row,) = outage_rows(now=NOW, visibility=EVERYTHING)
    assert (row.state, row.gpu_hours) == (OutageState.OVER, 3.0)


def test_the_waste_page_tells_it_apart(lab: Small, admin: User, client: Client) -> None:
    announce(admin, START, START + HOUR)
    collect_window("lab", Window(START, START + 3 * HOUR), now=NOW)
    price_hours(now=NOW)
    client.force_login(admin)
    day = START.date().isoformat()
    page = client.get(f"/costs/waste/?first={day}&last={day}").content.decode()
    assert "Planned outage" in page
    # A pattern of its own: its hue is that of what is unavailable, and a line is of no bar.
    assert 'class="swatch of-planned-outage striped' in page
    rows = client.get("/api/v1/planned-outages?cluster=lab").json()["results"]
    assert [(row["node"], row["purpose"], row["gpu_hours"]) for row in rows] == [
        ("one", "Layout change", 3.0)
    ]


def told(client: Client, path: str, **params: Any) -> list[dict[str, Any]]:
    """Return the rows of an address for a window of hours since START."""
    first, last = (START + hours * HOUR for hours in params.pop("window"))
    asked = {"start": first.isoformat(), "end": last.isoformat(), "interval": "total", **params}
    rows: list[dict[str, Any]] = client.get(f"/api/v1/{path}", asked).json()["results"]
    return rows


def lose_an_hour() -> User:
    """Announce an outage of an hour, collect three hours and price them; return an admin."""
    admin = make_user("root-admin", Role.ADMIN)
    with served():
        announce(admin, START + 30 * MINUTE, START + 90 * MINUTE)
        collect_window("lab", Window(START, START + 3 * HOUR), now=NOW)
    price_hours(now=NOW)
    return admin


_away = shared(lose_an_hour)


@pytest.fixture
def away(_away: User, db: None, client: Client) -> Client:
    """Return a client of an admin, of a portal in which one hour of GPUs was planned away."""
    client.force_login(_away)
    return client


PLACES = ("cluster", "tier", "gpu_model", "capacity_type")
GROUPINGS = [
    *(",".join(some) for count in range(5) for some in itertools.combinations(PLACES, count)),
    *("node", "tier,node"),
]
HALF_OF_IT = (1, 3)
FEW = ("", ",".join(PLACES), "tier,node")
"""Of the windows but one; check-full asks each of them in every grouping."""


@pytest.mark.parametrize("window", [(0, 1), (0, 2), (1, 2), HALF_OF_IT, (0, 3), (2, 3)])
@pytest.mark.parametrize("interval", ["total", "hour", "day"])
def test_all_parts_sum_to_the_capacity_in_every_grouping(
    away: Client, window: tuple[int, int], interval: str
) -> None:
    first, last = window
    # Three of four GPUs are free, in the second half of the first hour and the first of the next.
    lasted = max(0.0, min(last, 1.5) - max(first, 0.5))
    parts = ("planned_outage", "unhealthy", "unallocated", "allocated")
    for by in GROUPINGS if is_exhaustive() or window == HALF_OF_IT else FEW:
        rows = told(away, "usage", window=window, interval=interval, group_by=by)
        for row in rows:
            whole = sum(row[f"{name}_gpu_hours"] for name in parts)
            assert whole == pytest.approx(row["capacity_gpu_hours"], abs=1e-9), by
        assert sum(row["planned_outage_gpu_hours"] for row in rows) == 3 * lasted, by
        assert sum(row["capacity_gpu_hours"] for row in rows) == 4 * (last - first), by
        if "node" in by:
            continue  # costs are not kept by node
        costs = told(away, "costs", window=window, interval=interval, group_by=by)
        by_cause: Counter[str] = Counter()
        for row in costs:
            by_cause[row["cause"]] += round(row["gpu_hours"] * NANO)
        assert by_cause["planned_outage"] == round(3 * lasted * NANO), by
        assert sum(by_cause.values()) == 4 * (last - first) * NANO, by
        waste = told(away, "waste", window=window, interval=interval, group_by=by)
        assert "planned_outage" not in {row["cause"] for row in waste}
        free = sum(
            row["gpu_hours"] for row in waste if row["cause"] in ("unallocated", "unhealthy")
        )
        assert free == pytest.approx(3 * (last - first) - 3 * lasted, abs=1e-9), by


def test_hours_from_before_are_divided_as_those_of_today(lab: Small, admin: User) -> None:
    announce(admin, START + 30 * MINUTE, START + 90 * MINUTE)
    collect_window("lab", Window(START, START + 2 * HOUR), now=NOW)
    tables = (NodeHour, TierHour, TierDay)
    columns = ("capacity", "unhealthy", "unallocated", "stranded", "planned_outage")
    whole = {"unallocated": F("unallocated") + F("planned_outage"), "planned_outage": 0}

    def rows() -> list[list[tuple[Any, ...]]]:
        return [list(one.objects.order_by("pk").values_list(*columns)) for one in tables]

    today = rows()
    for table in tables:
        table.objects.update(**whole)
    assert rows() != today
    import_module("apps.usage.migrations.0010_planned_outage_ledger").divide(apps, None)
    assert rows() == today


def test_who_pays_and_what_it_costs_is_the_same_on_every_basis_and_policy(away: Client) -> None:
    for basis, policy in itertools.product(Basis, Policy):
        asked = {"basis": basis.value, "policy": policy.value, "group_by": "team"}
        rows = told(away, "costs", window=(0, 3), **asked)
        (planned,) = [row for row in rows if row["cause"] == "planned_outage"]
        assert (planned["team"], planned["gpu_hours"]) == (None, 3.0), "the platform pays for it"
        assert sum(row["gpu_hours"] for row in rows) == pytest.approx(12.0, abs=1e-9)


def test_explanation_report_and_files_agree_with_the_waste_page(away: Client) -> None:
    day = START.date().isoformat()
    window = f"first={day}&last={day}"
    for figure, value in (("planned_outage", "3.0"), ("unallocated", "6.0")):
        page = away.get(f"/explain/?figure={figure}_gpu_hours&{window}")
        assert page.status_code == 200
        assert value in page.content.decode()
    table = away.get(f"/costs/waste/?{window}&format=csv&table=fall").content.decode()
    steps = {row["cause"]: row for row in csv.DictReader(io.StringIO(table))}
    assert (steps["Planned outage"]["gpu_hours"], steps["Planned outage"]["waste"]) == ("3", "")
    report = month_report(START.date().replace(day=1), visibility=EVERYTHING, now=NOW)
    today: Any
    (today,) = [one for one in report.pages[0].days if one.planned_outage]
    known = (today.active, today.unused, today.no_metrics, today.unallocated, today.unavailable)
    assert today.planned_outage == pytest.approx(today.capacity * 3 / 12), "3 of 12 GPU-hours"
    assert sum(known, today.planned_outage) == pytest.approx(today.capacity)
    assert "Planned outage" in month_report_file(report)
    month = f"period={START:%Y-%m}"
    for address, cause, hours in (
        (f"/costs/file?{window}&format=csv", "cause", "gpu_hours"),
        (f"/api/v1/costs/focus?{month}&format=csv", "x_Cause", "ConsumedQuantity"),
    ):
        answer: Any = away.get(address)
        text = b"".join(answer.streaming_content).decode()
        found = [r for r in csv.DictReader(io.StringIO(text)) if r[cause] == "planned_outage"]
        assert sum(Decimal(row[hours]) for row in found) == 3, address


def test_one_is_announced_beforehand_and_by_administrators_alone(lab: Small, admin: User) -> None:
    with pytest.raises(OutageRefused, match="in the past"):
        announce(admin, START - HOUR, START + HOUR)
    with pytest.raises(OutageRefused, match="ends after it begins"):
        announce(admin, START + HOUR, START + HOUR)
    with pytest.raises(OutageRefused, match="no node two"):
        announce(admin, START, START + HOUR, node="two")
    with pytest.raises(NotAllowed):
        announce(make_user("member"), START, START + HOUR)
    assert not PlannedOutage.objects.exists()


def test_one_is_canceled_before_it_begins_and_ended_while_it_goes_on(
    lab: Small, admin: User
) -> None:
    assert announce(admin, START, START + 2 * HOUR) == 1
    assert announce(admin, START, START + 2 * HOUR) == 0, "a second press changes nothing"
    announce(admin, START + 3 * HOUR, START + 4 * HOUR)
    first, second = PlannedOutage.objects.order_by("start")
    cancel_outage(admin, second.pk, now=START + HOUR)
    cancel_outage(admin, first.pk, now=START + HOUR)
    states = {row.number: row.state for row in outage_rows(now=NOW, visibility=EVERYTHING)}
    assert states == {first.pk: OutageState.OVER, second.pk: OutageState.CANCELED}
    first.refresh_from_db()
    assert first.end == START + HOUR
    with pytest.raises(OutageRefused):
        cancel_outage(admin, first.pk, now=NOW)
    collect_window("lab", Window(START, START + 2 * HOUR), now=NOW)
    # Three GPUs are free: what was held was not away, and after its end nothing is.
    assert [row.hour for row in OutageHour.objects.all()] == [START]


def test_the_audit_log_has_who_announced_canceled_and_ended(lab: Small, admin: User) -> None:
    announce(admin, START, START + 2 * HOUR)
    announce(admin, START, START + 2 * HOUR)
    announce(admin, START + 3 * HOUR, START + 4 * HOUR)
    first, second = PlannedOutage.objects.order_by("start")
    cancel_outage(admin, second.pk, now=START + HOUR, origin="192.0.2.7")
    cancel_outage(admin, first.pk, now=START + HOUR, origin="192.0.2.7")
    rows = AuditEntry.objects.filter(subject__startswith="outage/").order_by("number")
    assert [(row.action, row.subject, row.actor, row.origin) for row in rows] == [
        ("plan_outage", f"outage/{first.pk}", "root-admin", ""),
        ("plan_outage", f"outage/{second.pk}", "root-admin", ""),
        ("cancel_outage", f"outage/{second.pk}", "root-admin", "192.0.2.7"),
        ("end_outage", f"outage/{first.pk}", "root-admin", "192.0.2.7"),
    ], "a second press is no other outage"
    planned, ended = content_of(rows[0].after), content_of(rows[3].after)
    assert planned == {
        "cluster": "lab",
        "node": "one",
        "purpose": "Layout change",
        "start": START.isoformat(),
        "end": (START + 2 * HOUR).isoformat(),
    }
    assert ended == {**planned, "end": (START + HOUR).isoformat()}
    with pytest.raises(OutageRefused):
        cancel_outage(admin, first.pk, now=NOW)
    assert rows.count() == 4, "what is refused is in no log"


def test_what_is_typed_is_one_line_that_a_database_stores(lab: Small, admin: User) -> None:
    def plan(node: str, purpose: str) -> int:
        asked = OutageInput("lab", node, START, START + HOUR, purpose)
        return plan_outages(admin, [asked], now=START - MINUTE)

    with pytest.raises(OutageRefused, match="no node"):
        plan("one\0", "New driver")
    for purpose in ("", " \u2028 ", "New\0driver", "New \x1b[31mdriver", "x" * 201):
        with pytest.raises(OutageRefused, match="Say what"):
            plan("one", purpose)
    assert plan("one", " New\u2028driver\r\nof\u00a0GPUs ") == 1
    assert PlannedOutage.objects.get().purpose == "New driver of GPUs"


def test_pages_announce_and_cancel(lab: Small, admin: User, client: Client) -> None:
    client.force_login(admin)
    soon = datetime.now(UTC).replace(second=0, microsecond=0) + 2 * HOUR
    typed = {
        "on": "lab",
        "node": "one",
        "start": soon.isoformat(),
        "end": (soon + HOUR).isoformat(),
        "purpose": "New driver",
    }
    refused = client.post("/capacity/outages/plan", {**typed, "start": "tomorrow"})
    assert refused.status_code == 400
    assert "is no time such as" in refused.content.decode()
    skipped = {**typed, "start": "2031-03-30T02:30", "end": "2031-03-30T09:00"}
    refused = client.post("/capacity/outages/plan?tz=Europe/Berlin", skipped)
    assert "Clocks in Europe/Berlin skip the start" in refused.content.decode()
    assert client.post("/capacity/outages/plan", typed).status_code == 302
    page = client.get("/capacity/layouts/").content.decode()
    assert "New driver" in page
    log = client.get("/admin/audit/?what=outage").content.decode()
    assert "plan outage" in log
    assert shown(soon, Format.TIME, report().zone) in log
    assert AuditEntry.objects.get(action="plan_outage").origin == "127.0.0.1"
    number = str(PlannedOutage.objects.get().pk)
    assert client.post("/capacity/outages/cancel", {"outage": number}).status_code == 302
    assert PlannedOutage.objects.get().canceled


def empty_by_pool(hours: int) -> list[list[float]]:
    """Collect the first hours, and return what stood empty as recommendations read it.

    In each hour, the least first, by pool.
    """
    collect_window("lab", Window(START, START + hours * HOUR), now=NOW)
    price_hours(now=NOW)
    prices = PricesInForce(NOW)
    span = span_of(Cluster.objects.get(), day_of(START, report().zone), now=NOW, days=1)
    book = offer_book(span.cluster, span.last, TierHistory.load().at(NOW.timestamp()), prices)
    found = hours_evidence(span, book, prices, {})
    return sorted(sorted(gpus for own in one.empty.values() for gpus in own) for one in found)


def test_nothing_stood_empty_that_was_away_as_planned(lab: Small, admin: User) -> None:
    assert empty_by_pool(2) == [[3.0, 3.0]]
    announce(admin, START, START + 30 * MINUTE)
    assert empty_by_pool(2) == [[1.5, 3.0]]


def test_stranded_slices_of_a_node_that_was_away_are_taken_out_once(admin: User) -> None:
    made = Small([pod("train-0", bound=0)], [job()])
    made.teams = [Team("vision", ("vision",), 4, "CC-1")]
    made.tiers = (
        Tier("exclusive-a100", "exclusive", "a GPU", ("nvidia.com/gpu",)),
        Tier("cut", "mig", "a half", ("nvidia.com/mig-3g.40gb",)),
    )
    # Two halves less a slice each: a seventh of each of four GPUs is stranded.
    made.nodes = [
        *made.nodes,
        *(
            gpu_node(
                seed="small",
                name=name,
                position=place,
                gpu=A100,
                gpus=4,
                created=ORIGIN,
                sharing=Sharing.MIG_MIXED,
                layouts=[("3g.40gb", "3g.40gb")] * 4,
            )
            for place, name in enumerate(("cut-1", "cut-2"), start=2)
        ),
    ]
    with served_lab(made, NOW.timestamp()) as url:
        load_served(made, url, now=NOW)
        snapshot_cluster("lab", now=NOW)
        whole = pytest.approx(8 * 6 / 7)
        assert empty_by_pool(2) == [[3.0, 3.0], [whole, whole]]
        announce(admin, START, START + HOUR, node="cut-1")
        assert empty_by_pool(2) == [[3.0, 3.0], [pytest.approx(4 * 6 / 7), whole]]
