"""What follows from collected hours is computed at once, and once."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.db import OperationalError

from apps.clusters.domain.window import Window
from apps.clusters.gateways import cluster_source
from apps.clusters.models import Cluster, Device
from apps.clusters.services.watch.follow import snapshot
from apps.costs.models import RecommendationRun, TeamCostDay
from apps.costs.services.prices import due_in
from apps.fairness.models import TeamFairnessDay
from apps.operations.services import derive_after_history, derive_after_hours, load_catalog
from apps.operations.services.deriving import DerivingStep, run_steps
from apps.pending.models import Episode
from apps.quotas.services import due_windows
from apps.usage.models import WorkloadDay
from apps.usage.services import collect_window
from simulator.catalog import catalog_yaml
from tests.fairness.ledger import due_hours
from tests.served_lab import scenario_of, served_lab
from tests.simulator.conftest import NOW

pytestmark = [pytest.mark.django_db, pytest.mark.long]

DAYS = 7
AT = datetime.fromtimestamp(NOW, UTC)
MIDNIGHT = datetime(2026, 11, 20, 23, tzinfo=UTC)
"""Of the report's zone."""


OF_HOURS = ("days", "costs", "pending pods", "fairness", "fairness by day", "quotas")


def now() -> datetime:
    return AT


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Yield a cluster that is watched, with seven days of hours and nothing beside."""
    scenario = scenario_of("reference", NOW)
    with served_lab(scenario, NOW) as url:
        load_catalog(catalog_yaml(scenario, url=url), "catalog.yaml", now=AT, dry_run=False)
        cluster = Cluster.objects.get()
        source = cluster_source(cluster)
        assert source is not None
        snapshot(cluster, source, AT)
        source.close()
        for back in range(DAYS):
            end = MIDNIGHT - timedelta(days=back)
            collect_window(cluster.name, Window(end - timedelta(days=1), end), now=AT)
        yield cluster


def test_what_follows_from_the_hours_is_computed_at_once_and_once(cluster: Cluster) -> None:
    derive_after_history(now)
    check_nothing_waits_for_beat(cluster)
    # Hours follow the history: what that computed is not computed again.
    again = {ran.step: ran.done for ran in derive_after_hours(now)}
    assert [again[name] for name in OF_HOURS] == [0] * len(OF_HOURS)
    rerun = {ran.step: ran.done for ran in derive_after_history(now)}
    assert rerun["recommendations"] == 0

    later = AT + timedelta(minutes=10)
    end = MIDNIGHT - timedelta(days=DAYS)
    collect_window(cluster.name, Window(end - timedelta(days=1), end), now=later)
    new = {ran.step: ran.done for ran in derive_after_hours(lambda: later)}
    assert all(new[name] for name in ("days", "costs", "fairness", "fairness by day", "quotas"))
    found = {ran.step: ran.done for ran in derive_after_history(lambda: later)}
    assert found["recommendations"]
    assert [found[name] for name in OF_HOURS] == [0] * len(OF_HOURS)
    run = RecommendationRun.objects.get()
    assert (run.at, run.collected_at) == (later, later)


def check_nothing_waits_for_beat(cluster: Cluster) -> None:
    window = Window(MIDNIGHT - timedelta(days=DAYS), MIDNIGHT)
    assert due_in(window) == 0
    assert due_hours(now=AT) == []
    assert due_windows(cluster.pk) == []
    assert WorkloadDay.objects.dates("day", "day").count() == DAYS
    assert TeamFairnessDay.objects.dates("day", "day").count() == DAYS
    assert TeamCostDay.objects.dates("day", "day").count() == DAYS
    assert Device.objects.count() == 32
    assert Episode.objects.filter(until__isnull=True).exists()
    assert RecommendationRun.objects.filter(found__gt=0).exists()


def test_a_step_that_fails_keeps_no_other_from_being_computed() -> None:
    left = [3]

    def broken(at: datetime) -> int:
        raise KeyError(at)

    def locked(_: datetime) -> int:
        raise OperationalError("database is locked")

    def partly(_: datetime) -> int:
        left[0] -= 1
        return int(left[0] >= 0)

    failing = (DerivingStep("broken", broken), DerivingStep("locked", locked))
    steps = (*failing, DerivingStep("whole", partly), DerivingStep("partly", partly, partly=True))
    ran = list(run_steps(steps, now))

    done = [("broken", None), ("locked", None), ("whole", 1), ("partly", 2)]
    assert [(one.step, one.done) for one in ran] == done
