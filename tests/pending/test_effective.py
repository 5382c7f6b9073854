"""Effective utilization: formula, kinds of work, and the worked example through the chain."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.test import Client

from apps.accounts.domain.identity import Role
from apps.accounts.models import User
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, WatchCoverage
from apps.operations.services import load_catalog
from apps.pending.domain.effective import (
    DemandOfGroups,
    KnownActivity,
    PendingWork,
    effective_utilization,
)
from apps.usage.domain.amounts import Amounts, nano
from apps.usage.services import collect_window
from simulator.catalog import catalog_yaml
from tests.factories import make_user, token_of
from tests.pending.watched_lab import WatchedLab
from tests.served_lab import scenario_of
from tests.simulator.client import serving

NOTEBOOK = PendingWork("west", "gold", "vision", "vision", "StatefulSet/notebook-eve")


def used(busy: float, *, idle: float = 0.0, unmeasured: float = 0.0) -> Amounts:
    return Amounts(
        allocated=nano(busy + idle + unmeasured),
        busy=nano(busy),
        idle=nano(idle),
        unmeasured=nano(unmeasured),
    )


def known(*works: tuple[str, float], team: float | None = None) -> KnownActivity:
    """Return the activity of workloads of NOTEBOOK's namespace, and of its team on its tier."""
    found = KnownActivity()
    for workload, ratio in works:
        found.add_work(NOTEBOOK._replace(workload=workload), used(ratio, idle=1 - ratio))
    if team is not None:
        found.add_team("gold", "vision", used(team, idle=1 - team))
        found.add_team("gold", "speech", used(0.0, idle=1.0))
    return found


@pytest.mark.parametrize(
    ("activity", "expected"),
    [
        (known(("StatefulSet/notebook-eve", 0.2), ("StatefulSet/notebook-ada", 0.6)), 0.2),
        (known(("StatefulSet/notebook-ada", 0.6), ("Job/notebook-x", 0.1), team=0.5), 0.6),
        (known(("StatefulSet/train-1", 0.9), team=0.5), 0.5),
        (KnownActivity(), None),
    ],
    ids=["itself", "its family", "its team on the tier", "nothing measured"],
)
def test_pending_work_is_as_active_as_the_closest_kind(
    activity: KnownActivity, expected: float | None
) -> None:
    assert activity.of(NOTEBOOK) == expected


def test_a_team_that_measured_nothing_is_as_active_as_its_tier() -> None:
    activity = known(team=0.5)
    assert activity.of(NOTEBOOK._replace(team="robotics")) == 0.25
    unmeasured = KnownActivity()
    unmeasured.add_work(NOTEBOOK, used(0.0, unmeasured=1.0))
    assert unmeasured.of(NOTEBOOK) is None


def test_pending_demand_is_added_to_both_sides() -> None:
    pending = [(NOTEBOOK, nano(4))]
    activity = known(("StatefulSet/notebook-ada", 0.05))
    held = used(17.2, idle=14.8)
    assert effective_utilization(held, pending, activity) == pytest.approx(17.4 / 36)
    assert effective_utilization(held, [], activity) == pytest.approx(17.2 / 32)
    assert effective_utilization(held, pending, KnownActivity()) is None
    assert effective_utilization(Amounts(), [], activity) is None


def test_demand_is_grouped_by_what_rows_are_grouped_by() -> None:
    other = NOTEBOOK._replace(team="speech")
    found = DemandOfGroups({NOTEBOOK: 1, other: 2}, ("tier", "team"))
    assert found.of({"tier": "gold", "team": "vision"}) == [(NOTEBOOK, 1)]
    assert found.of({"tier": "gold", "team": "robotics"}) == ()
    assert DemandOfGroups({NOTEBOOK: 1, other: 2}, ()).of({}) == [(NOTEBOOK, 1), (other, 2)]


def test_demand_of_a_tier_with_several_models_is_of_none_of_them() -> None:
    of_model = NOTEBOOK._replace(tier="silver", gpu_model="A10")
    found = DemandOfGroups({NOTEBOOK: 1, of_model: 2}, ("tier", "gpu_model"))
    assert found.of({"tier": "silver", "gpu_model": "A10"}) == [(of_model, 2)]
    assert found.of({"tier": "gold", "gpu_model": "A10"}) is None
    assert (
        DemandOfGroups({NOTEBOOK: 1, of_model: 2}, ("gpu_model",)).of({"gpu_model": "A10"}) is None
    )


# ---------------------------------------------------------------- the worked example

START = datetime(2026, 11, 18, 23, tzinfo=UTC)
END = START + timedelta(days=1)
DAY = {"start": START.isoformat(), "end": END.isoformat()}
MONTH = Decimal("71481.60")


@pytest.fixture
def reader(db: None) -> Iterator[User]:
    """Watch the reference cluster for a day and collect it."""
    scenario = scenario_of("reference", int(END.timestamp()) + 3600)
    with serving(scenario, START.timestamp() - 3600) as served:
        load_catalog(catalog_yaml(scenario, url=served.url), "c", now=START, dry_run=False)
        lab = WatchedLab(served, Cluster.objects.get(), START.timestamp() - 3600)
        lab.look()
        served.clock.advance(26 * 3600)
        now = lab.look()
        assert {one.state.value for one in collect_window("lab", Window(START, END), now=now)} == {
            "complete"
        }
        lab.look()
        yield make_user("root", Role.ADMIN)


def test_the_worked_example_is_as_the_definitions_say(reader: User) -> None:
    client = Client(headers={"authorization": f"Token {token_of(reader)}"})

    def ratio(**asked: str) -> list[float | None]:
        response = client.get("/api/v1/usage", DAY | {"interval": "total"} | asked)
        assert response.status_code == 200, response.content
        return [row["effective_utilization_ratio"] for row in response.json()["results"]]

    (whole,) = ratio()
    assert whole == pytest.approx(17.4 / 36, abs=1e-6)
    money = MONTH * (1 - Decimal(str(whole)))
    assert round(money) == 36_932
    assert ratio(group_by="tier") == [whole]
    assert ratio(interval="day") == [pytest.approx(whole)]
    assert ratio(group_by="team") == [
        pytest.approx(4.50 / 10),
        pytest.approx(4.55 / 11),
        pytest.approx(8.35 / 15),
    ]
    assert ratio(interval="hour") == [pytest.approx(whole)] * 24
    assert ratio(group_by="gpu_model") == [whole]
    assert ratio(workload="StatefulSet/notebook-ada", group_by="workload") == [pytest.approx(0.05)]
    for asked in ("node", "capacity_type"):
        assert set(ratio(group_by=asked)) == {None}
    # The watch went away: of the hours with facts since, series tell what pended once it is back.
    away = END - timedelta(hours=2)
    WatchCoverage.objects.filter(start__gte=away).delete()
    WatchCoverage.objects.update(end=away)
    assert ratio() == [None]
    assert ratio(end=away.isoformat()) == [pytest.approx(whole)]
