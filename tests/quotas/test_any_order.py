"""Quotas of hours that were collected in any order, with kills in between, are those in order."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from random import Random

import pytest

from apps.accounts.domain.structs import replace
from apps.clusters.domain.pods.ledger import LastSeen, Owner, PodRecord
from apps.clusters.domain.window import Window, from_seconds
from apps.clusters.gateways import metrics_source
from apps.clusters.models import Cluster, Pod, PodRevision
from apps.clusters.ports import DeviceAnswer, MetricsSource
from apps.clusters.services.catalog import TierHistory
from apps.clusters.services.pods.inferred_pods import store_inferred_pods
from apps.operations.services import load_catalog
from apps.quotas.models import QuotaHour, QuotaKeyHour
from apps.quotas.services import due_windows, roll_hours
from apps.usage.models import CollectionWindow
from apps.usage.services import collect_window
from simulator.catalog import catalog_yaml
from tests.factories import ensure_builtin, make_cluster
from tests.quotas.quota_rows import GPU, NOON, NOW, collected, watch
from tests.served_lab import served_lab
from tests.simulator.only_faults import at_minute, faults_once

pytestmark = pytest.mark.django_db

HOURS = 5
_NAMES = ("key__namespace", "key__name", "key__key", "team__name")
_AMOUNTS = ("hour", "seconds", "hard", "used", "held", "pending", "suppressed")


class Killed(BaseException):
    """The worker is gone: nothing catches it."""


class KilledHalfway:
    """A source whose reader is killed after the ledger was read and its pods were stored."""

    def __init__(self, source: MetricsSource) -> None:
        self._source = source

    def __getattr__(self, name: str) -> object:
        return getattr(self._source, name)

    def devices(self, window: Window) -> DeviceAnswer:
        raise Killed(window)


@pytest.fixture(scope="module")
def start() -> datetime:
    return from_seconds(at_minute(0, 3))


@pytest.fixture(scope="module")
def lab(start: datetime) -> Iterator[str]:
    now = start + timedelta(hours=HOURS + 1)
    with served_lab(faults_once(), now.timestamp()) as url:
        yield url


def quotas(lab: str, start: datetime, order: Sequence[int], killed: Sequence[int]) -> list[object]:
    """Collect hours in an order, some of them killed at first, and sum after each; return rows."""
    now = start + timedelta(hours=HOURS + 1)
    for model in (QuotaKeyHour, QuotaHour, CollectionWindow, PodRevision, Pod):
        model._default_manager.all().delete()
    load_catalog(catalog_yaml(faults_once(), url=lab), "catalog.yaml", now=now, dry_run=False)
    cluster = Cluster.objects.get()
    for place, number in enumerate(order):
        window = Window.hour(start + timedelta(hours=number))
        if number in killed:
            with pytest.raises(Killed):
                collect_window(cluster.name, window, now=now, source=_dying(cluster))
        collect_window(cluster.name, window, now=now + timedelta(seconds=place))
        roll_hours(now=now)
    assert due_windows(cluster.pk) == []
    rows = QuotaKeyHour.objects.order_by("hour", *_NAMES).values_list(*_NAMES, *_AMOUNTS)
    return list(rows)


def _dying(cluster: Cluster) -> MetricsSource:
    return KilledHalfway(metrics_source(cluster))  # type: ignore[return-value]


def test_the_order_of_collection_and_kills_do_not_matter(lab: str, start: datetime) -> None:
    in_order = quotas(lab, start, range(HOURS), ())
    assert len(in_order) > HOURS
    random = Random(1)  # noqa: S311 (no secret)
    for _ in range(2):
        order = random.sample(range(HOURS), HOURS)
        killed = random.sample(range(HOURS), 2)
        assert quotas(lab, start, order, killed) == in_order


def test_an_hour_is_due_again_when_another_one_tells_more_of_its_pods() -> None:
    ensure_builtin()
    cluster = make_cluster("west")
    collected(cluster, NOON)
    made = NOON.timestamp()
    pod = PodRecord("uid", "vision", "a", Owner("Pod", "a"), {GPU: 2.0}, made, bound=made)
    gone = replace(pod, deleted=made + 900, last_seen=LastSeen(made + 900, gone=True))
    store_inferred_pods(cluster, [gone], TierHistory(()), {}, now=NOW)
    watch(cluster)
    assert roll_hours(now=NOW) == 1
    store_inferred_pods(cluster, [gone], TierHistory(()), {}, now=NOW)
    assert due_windows(cluster.pk) == [], "nothing new"
    there = replace(pod, last_seen=LastSeen(made + 7200, gone=False))
    store_inferred_pods(cluster, [there], TierHistory(()), {}, now=NOW)
    assert due_windows(cluster.pk) == [Window.hour(NOON)]
