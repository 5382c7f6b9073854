"""What the portal says was lost is what the simulator threw away, collected as in production."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import EVERYTHING
from apps.clusters.adapters.prometheus.client import PrometheusApi
from apps.clusters.adapters.prometheus.http_api import PrometheusConfig
from apps.clusters.adapters.prometheus.source import PrometheusSource
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster
from apps.clusters.models import Pod as PodRow
from apps.clusters.ports import Answered, PodCheckpoints, SourceRejected
from apps.clusters.services import snapshot_cluster
from apps.goodput.selectors import goodput_ledger
from apps.operations.services import load_catalog
from apps.usage.domain.amounts import NANO
from apps.usage.domain.usage_query import Filters, Grouping
from apps.usage.models import CollectionWindow, SavedStates
from apps.usage.services import collect_window, forget, roll_days
from simulator.catalog import catalog_yaml
from simulator.fleet import Crash, Pod
from simulator.scenarios.base import Team
from tests.served_lab import served_lab
from tests.simulator.small import ORIGIN, Small, pod

pytestmark = pytest.mark.django_db

HOUR = 3600
HOURS = 12
NOW = ORIGIN + HOURS * HOUR + 900
TOLERANCE = 0.01


def planted() -> list[Pod]:
    """Return pods that take turns on four GPUs; every end that loses work is among them."""
    ends = (
        *("Error", "OOMKilled", "", "Evicted", "PreemptionByScheduler"),
        *("", "DeletionByTaintManager", ""),
    )
    found = []
    for number, reason in enumerate(ends):
        begin = (number // 2) * 3 * HOUR + number * 61
        made = pod(
            f"work-{number}",
            created=begin,
            bound=begin + 30,
            started=begin + 330,
            finished=begin + 2 * HOUR + 1234 - number * 77,
            # What is over stays until the portal has seen it, as pods of Jobs do.
            deleted=100 * HOUR,
            devices=(0, 1) if number % 2 else (2, 3),
            activity=0.1 * number,
        )
        found.append(replace(made, end_reason=reason))
    begin = ORIGIN + 11 * HOUR + 1700
    crashing = pod("crashing", created=11 * HOUR, bound=11 * HOUR + 900, devices=(0,))
    return [*found, replace(crashing, crashes=(Crash(begin),))]


def lost_gpu_hours(pods: Sequence[Pod]) -> float:
    """Return what the simulator knows to be lost."""
    lost = 0.0
    for one in pods:
        for crash in one.crashes:
            # While it backs off, work that was lost holds its GPUs still.
            lost += (crash.restarted - one.started) * one.units
        if one.end_reason:
            lost += (one.finished - one.started) * one.units
    return lost / HOUR


def saving() -> list[Pod]:
    """Return pods that tell their checkpoints by a series, and one without any.

    The second one crashes, and what it saved before is not of the run that fails at last.
    """
    begin, every = ORIGIN + 600, 1500
    evicted = pod("evicted", bound=300, started=600, finished=5 * HOUR, deleted=100 * HOUR)
    crashed = pod("crashed", bound=300, started=600, finished=5 * HOUR, deleted=100 * HOUR)
    quiet = pod("quiet", bound=300, started=600, finished=5 * HOUR, deleted=100 * HOUR)
    saved = tuple(range(begin + every, ORIGIN + 5 * HOUR, every))
    first = ORIGIN + 2 * HOUR + 1000
    return [
        replace(
            *(evicted,),
            devices=(0,),
            end_reason="Evicted",
            checkpoints=saved,
            annotating=False,
        ),
        replace(
            *(crashed,),
            devices=(1,),
            end_reason="OOMKilled",
            crashes=(Crash(first),),
            checkpoints=tuple(at for at in saved if at < first),
            annotating=False,
        ),
        replace(quiet, devices=(2,), end_reason="Error"),
    ]


def lost_since_saved(pods: Sequence[Pod]) -> dict[str, float]:
    """Return what the simulator knows to be lost since the checkpoints of each run, by reason."""
    lost: defaultdict[str, float] = defaultdict(float)
    for one in pods:
        ends = [(crash.at, crash.reason, crash.restarted) for crash in one.crashes]
        ends.append((one.finished, one.end_reason, one.finished))
        for (start, end), (at, reason, again) in zip(one.runs, ends, strict=True):
            kept = max((saved for saved in one.checkpoints if start < saved <= at), default=start)
            lost[reason] += (end - kept + again - at) * one.units / HOUR
    return dict(lost)


METRIC = "training_last_checkpoint_timestamp_seconds"
START, END = (datetime.fromtimestamp(at, UTC) for at in (ORIGIN, ORIGIN + HOURS * HOUR))


@contextmanager
def saving_lab(metric: str) -> Iterator[list[Pod]]:
    """Serve pods with checkpoints, collected as in production, and yield them."""
    pods = saving()
    scenario = Small(pods)
    scenario.teams = [Team("vision", ("vision",), 4, "CC-1")]
    scenario.checkpoint_metric = metric
    now = datetime.fromtimestamp(NOW, UTC)
    with served_lab(scenario, NOW) as url:
        load_catalog(catalog_yaml(scenario, url=url), "catalog.yaml", now=now, dry_run=False)
        snapshot_cluster("lab", now=now)
        # In the order of nothing: an hour that comes late is not the newest knowledge.
        for hour in (7, 2, 5, 3, 0, 1, 4, 2, 6):
            collect_window("lab", Window.hour(START + hour * timedelta(hours=1)), now=now)
        yield pods


def lost_by_reason() -> dict[str, float]:
    found = goodput_ledger(
        Window(START, END), group_by=(), filters=Filters(), visibility=EVERYTHING
    )
    return {one.reason: one.lost_gpu_hours for one in found.reasons}


@pytest.mark.parametrize("metric", [METRIC, ""])
def test_lost_work_counts_from_checkpoints_that_series_tell(metric: str) -> None:
    with saving_lab(metric) as pods:
        # Without the metric none is known: each run counts from its start.
        known = pods if metric else [replace(one, checkpoints=()) for one in pods]
        assert lost_by_reason() == pytest.approx(lost_since_saved(known), rel=TOLERANCE)
        assert SavedStates.objects.count() == (2 if metric else 0)
        assert all(len(one.times) == 1 for one in SavedStates.objects.all())


class Refusing(PrometheusSource):
    """A server that gives no raw samples."""

    def checkpoints(self, window: Window) -> Answered[PodCheckpoints]:
        raise SourceRejected(f"too many samples in {window}")


def test_a_refusal_takes_no_checkpoint_away_and_they_go_with_their_pods() -> None:
    with saving_lab(METRIC):
        before = lost_by_reason()
        config = PrometheusConfig.from_catalog(Cluster.objects.get().prometheus)
        source = Refusing(PrometheusApi(config))
        collect_window("lab", Window.hour(START + timedelta(hours=4)), now=END, source=source)
        source.close()
    row = CollectionWindow.objects.get(hour=START + timedelta(hours=4))
    assert row.state == "complete"
    assert any("too many samples" in text for text in row.warnings)
    assert lost_by_reason() == before
    PodRow.objects.filter(name="evicted").delete()
    forget(now=END)
    assert [one.pod.name for one in SavedStates.objects.select_related("pod")] == ["crashed"]


def test_lost_gpu_hours_are_those_that_were_planted() -> None:
    pods = planted()
    scenario = Small(pods)
    scenario.teams = [Team("vision", ("vision",), 4, "CC-1")]
    now = datetime.fromtimestamp(NOW, UTC)
    start, end = (datetime.fromtimestamp(at, UTC) for at in (ORIGIN, ORIGIN + HOURS * HOUR))
    with served_lab(scenario, NOW) as url:
        load_catalog(catalog_yaml(scenario, url=url), "catalog.yaml", now=now, dry_run=False)
        snapshot_cluster("lab", now=now)
        collect_window("lab", Window(start, end), now=now)
    roll_days(now=now)
    totals = []
    for by in ((), (Grouping.NODE,), (Grouping.TEAM,), (Grouping.TIER,), (Grouping.WORKLOAD,)):
        found = goodput_ledger(
            Window(start, end), group_by=by, filters=Filters(), visibility=EVERYTHING
        )
        totals.append(found.total)
        reasons = {one.reason for one in found.reasons}
        assert reasons == {
            *("Error", "OOMKilled", "Evicted", "PreemptionByScheduler"),
            "DeletionByTaintManager",
        }
        if by == (Grouping.NODE,):
            # All pods are of one node.
            rows = {row.groups["node"]: row.amounts.lost / NANO for row in found.rows}
            assert rows == pytest.approx({"one": lost_gpu_hours(pods)}, rel=TOLERANCE)
    (total,) = set(totals)
    assert total.allocated == sum(total[1:])
    assert total.lost / NANO == pytest.approx(lost_gpu_hours(pods), rel=TOLERANCE)
    started = sum((one.started - one.bound) * one.units for one in pods) / HOUR
    assert total.starting / NANO == pytest.approx(started, rel=TOLERANCE)
    kept = [one for one in pods if not one.end_reason and not one.crashes]
    busy = sum((one.finished - one.started) * one.units * one.activity for one in kept)
    crashing = pods[-1]
    busy += (ORIGIN + HOURS * HOUR - crashing.crashes[0].restarted) * crashing.activity
    assert total.productive / NANO == pytest.approx(busy / HOUR, rel=TOLERANCE)
