"""Demand that only Kueue's series show, from the served protocols through to the API."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from apps.accounts.domain.identity import Role
from apps.accounts.domain.structs import replace
from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.window import Window
from apps.clusters.gateways import cluster_source
from apps.clusters.models import Cluster, WatchCoverage
from apps.clusters.services.watch.follow import snapshot
from apps.fairness.services import compute_hours, roll_days
from apps.pending.domain.queues.unrecorded import (
    CountedUnits,
    LocalLink,
    QueueLinks,
    beyond_history,
    link_start,
)
from apps.pending.models import CauseInterval
from apps.pending.services import refresh, take_in_pods
from apps.pending.services import roll_days as roll_pending
from apps.planning.selectors import what_if
from apps.quotas.models import Entitlement
from apps.usage.models import QueueHour, QueuePending
from apps.usage.services import collect_window
from simulator.fleet import Admission, Controller, Pod, Suspension
from simulator.scenarios.base import Namespace, Queue
from tests.factories import ensure_builtin, make_report, make_team, make_tier, make_user
from tests.simulator.client import Served, serving
from tests.simulator.small import ORIGIN, Small, pod

GPU = "nvidia.com/gpu"
START = datetime.fromtimestamp(ORIGIN, UTC)
HOURS = 4
END = START + timedelta(hours=HOURS)
WINDOW = {"start": START.isoformat(), "end": END.isoformat()}


def queue(name: str, namespace: str = "vision") -> Queue:
    return Queue(name, f"to-{name}", namespace, "a100", GPU, 2, ORIGIN)


def gated(one: Pod, of: Queue) -> Pod:
    """Return a pod that a queue holds back by a gate, for all its life."""
    held = Admission("kueue.x-k8s.io/admission", queue=of.name, local=of.local, workload=one.uid)
    return replace(one, admission=held)


def job(of: Queue, first: float, last: float, *, pods: int, units: int = 2) -> Controller:
    """Return a suspended Job; hours after the origin."""
    held = Suspension(of.name, of.local, pods, units, GPU, {}, f"workload-of-{first}")
    since, until = ORIGIN + round(first * 3600), ORIGIN + round(last * 3600)
    uid = f"uid-of-{of.name}-{first}"
    return Controller("Job", uid, of.namespace, uid, since, until, suspension=held)


class World(Struct):
    """A served lab, its cluster, and what the API says of it."""

    served: Served
    cluster: Cluster
    client: Client

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.served.clock.now_ms() / 1000, UTC)

    def collect(self, first: int = 0, last: int = HOURS) -> None:
        window = Window(START + timedelta(hours=first), START + timedelta(hours=last))
        collect_window("lab", window, now=self.now())

    def derive(self) -> None:
        take_in_pods([self.cluster.pk], now=self.now())
        roll_pending(now=self.now())
        compute_hours(now=self.now(), at_most=100)
        roll_days(now=self.now())

    def watch(self) -> None:
        """See everything once, as the watch does at its start."""
        kubernetes = {"api_server": self.served.url}
        Cluster.objects.update(kubernetes=kubernetes)
        self.cluster.refresh_from_db()
        source = cluster_source(self.cluster)
        assert source is not None
        snapshot(self.cluster, source, self.now())
        source.close()
        began = self.now() - timedelta(seconds=5)
        WatchCoverage.objects.update_or_create(
            cluster=self.cluster, defaults={"start": began, "end": self.now()}
        )
        refresh(self.cluster.pk, now=self.now())

    def get(self, path: str, **query: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.client.get(f"/api/v1/{path}", WINDOW | query).json()[
            "results"
        ]
        return found

    def suppressed(self, by: str) -> dict[str, float]:
        """Return what the API says was blocked at admission in the window, in GPU-hours."""
        found: dict[str, float] = {}
        for row in self.get("pending/history", group_by=by):
            amount = row["suppressed_gpu_hours"]
            if amount:
                found[row[by]] = found.get(row[by], 0.0) + amount
        return found

    def team(self, name: str) -> dict[str, Any]:
        (tier,) = (one for one in self.get("fairness") if one["tier"] == "whole")
        return next((one for one in tier["teams"] if one["team"] == name), {})


@pytest.fixture
def portal(db: None) -> Client:
    del db
    make_report("UTC")
    ensure_builtin()
    tier = make_tier("whole", model="NVIDIA-A100-SXM4-80GB")
    for name in ("vision", "speech"):
        team = make_team(name, name, f"{name}-*")
        Entitlement.objects.create(team=team, tier=tier, gpus=2, weight=2, valid_from=START)
    client = Client(SERVER_NAME="localhost")
    client.force_login(make_user("admin", Role.ADMIN))
    return client


class Queued(Small):
    """One node, queues, suspended Jobs and pods."""

    def __init__(
        self, pods: Sequence[Pod], jobs: Sequence[Controller], queues: Sequence[Queue]
    ) -> None:
        super().__init__(pods, quota=100)
        spaces = sorted({one.namespace for one in queues})
        self.namespaces = [Namespace(name, f"uid-of-{name}", ORIGIN) for name in spaces]
        self.queues = list(queues)
        self.flavors = {"a100": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}}
        self._epoch.controllers = tuple(jobs)


def served(scenario: Queued, client: Client) -> Iterator[World]:
    with serving(scenario, END.timestamp() + 600) as lab:
        prometheus = {"url": lab.url, "scrape_interval_seconds": 15}
        cluster = Cluster.objects.create(name="lab", prometheus=prometheus)
        yield World(lab, cluster, client)


MINE, OTHER = queue("mine"), queue("other", "speech")


def of_two(mine: Queue = MINE, *more: Queue) -> Queued:
    """Return a world of 18 GPU-hours in one queue, of which a gated pod asks for two."""
    runs = pod("runs", created=60, bound=120, devices=(0, 1))
    waits = gated(pod("waits", created=1800, deleted=5400, devices=(0, 1)), mine)
    jobs = [job(mine, 1, 3, pods=2), job(mine, 2.5, 3.5, pods=4)]
    return Queued([runs, waits], jobs, [mine, *more])


@pytest.fixture
def alone(portal: Client) -> Iterator[World]:
    yield from served(of_two(), portal)


def test_demand_without_pods_is_the_series_less_what_the_history_has(alone: World) -> None:
    alone.collect()
    alone.derive()
    # Jobs of 4 GPUs for two hours and of 8 for one; the gated pod is counted as a pod.
    assert alone.suppressed("cause") == {"queue": pytest.approx(16, abs=0.1)}
    # A cluster with one ClusterQueue: whose LocalQueues have Workloads, uses it.
    assert alone.suppressed("team") == {"vision": pytest.approx(16, abs=0.1)}
    row = alone.team("vision")
    held = 2 * (HOURS - 120 / 3600)
    # The gated pod waits for an hour. Of four GPUs no more than four are demand at a time.
    assert row["demand_gpu_hours"] == pytest.approx(held + 1 + 2 * 2 + 1, abs=0.1)
    held_to_series()
    replayed = what_if(Window(START, END), (), visibility=EVERYTHING)
    (vision,) = (one for tier in replayed.before for one in tier.teams if one.team == "vision")
    # The replay has the demand of the queue, whose waits nobody knows: those of two pods count.
    assert vision.waits_ended + vision.gave_up + vision.waiting_now == 2
    assert vision.demand_gpu_hours > held + 2
    before = list(CauseInterval.objects.order_by("pk").values_list("pk", "start", "counted"))
    alone.collect()
    alone.collect(2, 3)
    alone.derive()
    assert (
        list(CauseInterval.objects.order_by("pk").values_list("pk", "start", "counted")) == before
    )
    page = alone.client.get("/pending/", {**WINDOW, "tab": "history"}).content.decode()
    assert "Pending in Kueue" in page
    assert "GPUs not known" not in page


def held_to_series() -> None:
    """Hold what counts of each slot as pending in a queue against what its series show."""
    for shown in QueuePending.objects.exclude(resource=""):
        low, high = shown.slot, shown.slot + timedelta(minutes=30)
        total = 0.0
        for interval in CauseInterval.objects.filter(
            start__lt=high, end__gt=low, counts__in=("pending", "suppressed")
        ).exclude(episode__name="runs"):
            assert interval.end is not None
            both = min(interval.end, high) - max(interval.start, low)
            total += interval.counted * both.total_seconds() / 1800
        assert total == pytest.approx(shown.units, abs=0.05), shown


def test_without_a_link_no_team_is_known_until_a_watch_shows_it(portal: Client) -> None:
    for world in served(of_two(MINE, OTHER), portal):
        world.collect()
        world.derive()
        assert world.suppressed("team") == {"no team known": pytest.approx(16, abs=0.1)}
        assert world.team("vision")["demand_gpu_hours"] < 10.1
        assert {row["team"] for row in world.get("fairness")[0]["teams"]} <= {"vision", "speech"}
        assert (
            "no team known"
            in portal.get("/pending/", {**WINDOW, "tab": "history"}).content.decode()
        )
        world.watch()
        world.derive()
        assert world.suppressed("team") == {"vision": pytest.approx(16, abs=0.1)}
        assert world.team("vision")["demand_gpu_hours"] > 13.9
        assert not QueueHour.objects.filter(due=True).exists()
        key = f"/quotas/lab/ClusterQueue/-/mine/a100/{GPU}/"
        assert "Pending in Kueue" in portal.get(key, WINDOW).content.decode()


def test_hours_that_the_watch_saw_have_what_it_saw_alone(portal: Client) -> None:
    for world in served(of_two(), portal):
        span = (START + timedelta(hours=1), START + timedelta(hours=3))
        WatchCoverage.objects.create(cluster=world.cluster, start=span[0], end=span[1])
        world.collect()
        world.derive()
        intervals = CauseInterval.objects.filter(episode__kind="ClusterQueue")
        assert intervals.exists()
        assert not intervals.filter(start__lt=span[1], end__gt=span[0]).exists()


def test_a_number_of_workloads_is_shown_and_no_demand(portal: Client) -> None:
    scenario = of_two()
    scenario.queue_resources = False
    for world in served(scenario, portal):
        world.collect()
        world.derive()
        assert not CauseInterval.objects.filter(episode__kind="ClusterQueue").exists()
        assert world.suppressed("cause") == {}
        page = portal.get("/pending/", {**WINDOW, "tab": "history"}).content.decode()
        assert "On average 1 workload pending in Kueue, GPUs not known: not added" in page
        assert "not exported" in page


# ---------------------------------------------------------------- what is taken off


def test_what_may_wait_in_several_queues_is_taken_off_once() -> None:
    links = QueueLinks({("a", "x"): "one", ("a", "y"): "two", ("b", "x"): "three"})
    shown = {"one": 4.0, "two": 6.0, "three": 2.0, "four": 5.0}
    counted = [
        CountedUnits("a", "x", 1.0),
        CountedUnits("a", "", 5.0),
        CountedUnits("b", "", 3.0),
        CountedUnits("elsewhere", "", 2.0),
    ]
    assert beyond_history(shown, counted, links) == {
        "one": 3.0,
        "two": 1.0,
        "three": 0.0,
        "four": 3.0,
    }


_UNITS = st.floats(0, 9)


@given(
    shown=st.fixed_dictionaries(dict.fromkeys(("one", "two", "three"), _UNITS)),
    linked=st.dictionaries(
        st.tuples(st.sampled_from("ab"), st.sampled_from("xy")),
        st.sampled_from(("one", "two", "three")),
    ),
    counted=st.lists(
        st.builds(CountedUnits, st.sampled_from("abc"), st.sampled_from(("x", "y", "")), _UNITS)
    ),
)
def test_demand_is_at_most_what_the_series_show(
    shown: dict[str, float], linked: dict[tuple[str, str], str], counted: list[CountedUnits]
) -> None:
    left = beyond_history(shown, counted, QueueLinks(linked))
    assert all(0.0 <= left[queue] <= shown[queue] for queue in shown)
    for queue in shown:
        own = sum(
            one.units for one in counted if linked.get((one.namespace, one.local_queue)) == queue
        )
        assert own + left[queue] <= max(shown[queue], own) + 1e-6


def test_links_hold_from_when_a_queue_was_there() -> None:
    spans = [(1000.0, 2000.0), (5000.0, 9000.0)]
    assert link_start(1004.0, spans) == 0.0
    assert link_start(1900.0, spans) == 1900.0
    assert link_start(5100.0, spans) == 2000.0
    links = [LocalLink(("a", "x"), "one", 0.0, 50.0), LocalLink(("a", "x"), "two", 50.0, 90.0)]
    two = {"one", "two"}
    assert QueueLinks.at(links, 60.0, queues=two, shown=()).by_local == {("a", "x"): "two"}
    at = QueueLinks.at(links, 10.0, queues=two, shown=[("b", "y")])
    assert at.by_local == {("a", "x"): "one"}
    only = QueueLinks.at((), 10.0, queues={"one"}, shown=[("b", "y"), ("c", "y")])
    assert only.users("one") == {"b", "c"}
    assert only.users_now("one", {("b", "y"): 0.0, ("c", "y"): 2.0}) == {"c"}
