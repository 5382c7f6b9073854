"""A Prometheus of several clusters: of another one's series nothing becomes a fact.

The other cluster has pods, uids, nodes and GPUs of the same names, with other values, and as many
more that this one has not.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import timedelta
from functools import partial

import pytest

from apps.accounts.domain.structs import replace
from apps.clusters.models import Node, Pod
from simulator.catalog import catalog_yaml
from simulator.fleet import GPU, Admission
from simulator.prometheus.series import Series
from simulator.prometheus.signals import ClusterFilter, Match, Signals
from simulator.scenarios.base import Queue
from tests.faults.collecting import HOURS, START, Collecting, World, catalog, collecting
from tests.faults.facts import Facts, differences
from tests.faults.proxy import Proxy
from tests.simulator.only_faults import faults_once
from tests.simulator.small import ORIGIN, Small
from tests.usage.served_models import serving_scenario

pytestmark = [pytest.mark.django_db, pytest.mark.long, pytest.mark.usefixtures("no_pauses")]

OTHER = "twin"
_IDENTITIES = (
    "UUID",
    "cluster_queue",
    "exported_pod",
    "name",
    "node",
    "pod",
    "resourcequota",
    "uid",
)
_LATER = 420.0
"""Seconds by which times of the other cluster are later."""


class TwoClusters(Signals):
    """The series of a scenario, and those of another cluster beside each."""

    def series(
        self,
        metric: str,
        low_ms: int,
        high_ms: int,
        *,
        wanted: Match = lambda _: True,
        of: ClusterFilter = lambda _: True,
    ) -> Iterator[Series]:
        for one in super().series(metric, low_ms, high_ms):
            if of(one.labels["cluster"]):
                yield one
            if of(OTHER):
                for labels in _other_labels(one.labels):
                    yield _other(one, labels)


def _other_labels(labels: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield the labels of the twin of a series, and of one that this cluster has none of."""
    yield {**labels, "cluster": OTHER}
    renamed = {name: f"{OTHER}-{labels[name]}" for name in _IDENTITIES if labels.get(name)}
    yield {**labels, **renamed, "cluster": OTHER}


def _other(series: Series, labels: dict[str, str]) -> Series:
    """Return a series of the other cluster: its values are larger, its times later."""
    segments = [
        one._replace(value=one.value + _LATER if one.value > 1e9 else 2 * one.value + 1)
        for one in series.segments
    ]
    return series._replace(labels=labels, segments=segments)


def _catalog_of(scenario: Small, url: str) -> str:
    return catalog_yaml(scenario, url=url)


Run = Callable[[Collecting], Facts]


def watched(portal: Collecting) -> Facts:
    """Watch the API server and collect, as where both are known."""
    return portal.run()


def by_series(portal: Collecting) -> Facts:
    """Collect what series alone tell: pods, pending work, quotas and queues, too."""
    portal.collect_all()
    return portal.finish(HOURS[-1].end)


def with_queues_and_services() -> Small:
    """Return pods that serve models, and one that waits in a queue of Kueue and then serves one."""
    made = serving_scenario()
    epoch = made.epoch_at(ORIGIN)
    assert epoch is not None
    first, *others = epoch.pods
    gate = "kueue.x-k8s.io/admission"
    let_in = ORIGIN + 7200 + 1260
    waiting = Admission(gate, let_in, "cq", "main", first.created, let_in, first.uid)
    pods = [replace(first, admission=waiting, bound=let_in + 40, started=let_in + 60), *others]
    queued = Small(pods, made.controllers)
    queued.services, queued.teams = made.services, made.teams
    queued.queues = [Queue("cq", "main", "vision", "a100", GPU, 2, ORIGIN)]
    return queued


SERVED = with_queues_and_services()
WORLDS: Mapping[str, tuple[Run, World | None]] = {
    "watched": (watched, None),
    "by series alone": (by_series, None),
    "queues and services": (by_series, World(SERVED, START, partial(_catalog_of, SERVED))),
}
TOLD: Mapping[str, Collection[str]] = {
    "watched": (
        *("clusters_pod", "clusters_nodeinterval", "clusters_device", "usage_nodehour"),
        *("usage_podhour", "pending_causeinterval", "pending_pendingday", "quotas_quotakeyhour"),
        *("fairness_fairnesswindow", "fairness_fairnessday", "costs_pricedhour"),
    ),
    "by series alone": (
        *("clusters_pod", "usage_nodehour", "usage_podhour", "usage_tierhour"),
        *("quotas_quotakeyhour", "fairness_fairnesswindow", "costs_pricedhour"),
    ),
    "queues and services": ("usage_servinghour", "quotas_quotakeyhour", "usage_podhour"),
}
"""World → tables that have rows in it: the comparison sees what they would change."""


QUIET = {"watched": "quiet_run", "by series alone": "quiet_series"}
"""World → the fixture that has the facts of that cluster alone."""


def facts_of(door: Proxy, name: str) -> Facts:
    run, world = WORLDS[name]
    with collecting(door, world=world) as portal:
        return run(portal)


@pytest.mark.parametrize("name", WORLDS)
def test_series_of_another_cluster_change_no_fact(
    door: Proxy, name: str, request: pytest.FixtureRequest
) -> None:
    known = QUIET.get(name)
    alone = request.getfixturevalue(known) if known else facts_of(door, name)
    assert {table for table in TOLD[name] if not alone[table]} == set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("simulator.server.Signals", TwoClusters)
        beside = facts_of(door, name)
    assert differences(alone, beside) == []


def test_without_matchers_they_would(door: Proxy) -> None:
    """The test above is not blind: what tells the clusters apart are the matchers alone."""

    def unmatched(url: str) -> str:
        return catalog(url).replace(", matchers: {cluster: lab}", "")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("simulator.server.Signals", TwoClusters)
        with collecting(door, world=World(faults_once(), START, unmatched)) as portal:
            portal.move_to(HOURS[-1].end + timedelta(minutes=10))
            for hour in HOURS:
                portal.collect(hour)
            quotas = portal.source.quotas(HOURS[0]).rows
            assert Pod.objects.filter(uid__startswith=OTHER).exists()
            assert Node.objects.filter(name__startswith=OTHER).exists()
            assert any(one.quota.startswith(OTHER) for one in quotas)
