"""Names that are used again: uids of pods, names of nodes, and pods that follow within a minute.

Whatever the series say of them, nothing appears and nothing disappears.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from django.db.models import Sum
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters.domain.window import Window
from apps.usage.domain.amounts import NANO
from apps.usage.models import CollectionWindow, NodeHour, PodHour, TierHour
from apps.usage.services import collect_window
from simulator.fault_scenarios.site import A10
from simulator.fleet import FOREVER, Node, Pod
from simulator.machines import PRODUCT, a100_node, gpu_node
from simulator.prometheus import signals
from simulator.prometheus.series import Series
from simulator.prometheus.signals import ClusterFilter, Match, Signals
from tests.faults.collecting import World, collecting
from tests.faults.proxy import Proxy
from tests.simulator.small import ORIGIN, Small, pod
from tests.thinned import thinned
from tests.usage.equations import ALLOCATED_PARTS, CAPACITY_PARTS

pytestmark = [pytest.mark.django_db, pytest.mark.long, pytest.mark.usefixtures("no_pauses")]

START = datetime.fromtimestamp(ORIGIN, UTC)
ORDERS = ("one by one", "backwards", "at once")
"""In which the hours are collected."""
HOURS = tuple(Window.hour(START + timedelta(hours=n)) for n in range(3))
SCRAPE = 30 / 3600
"""GPU-hours by which a GPU whose end no series tells may be off."""


BESIDE = a100_node(seed="beside", name="two", position=3, gpus=1, created=ORIGIN, labels={})
"""A node that stays: without one nobody could tell that the other went."""


class NodeLife(Struct, frozen=True):
    """A node with its pods, and when it went; times are seconds after the origin.

    `away` is when its pods were not there, whatever their times say.
    """

    node: Node
    pods: Sequence[Pod] = ()
    gone: int = FOREVER - ORIGIN
    away: tuple[int, int] = (0, 0)

    def scenario(self, *, is_first: bool) -> Small:
        made = Small(self.pods)
        made.nodes = [self.node]
        if is_first:
            made.nodes.append(BESIDE)
        else:
            # What is of the cluster is there once.
            made.namespaces, made.quotas, made.controllers = [], [], []
        return made

    def shown(self, series: Series) -> Series:
        """Return what is left of a series where what it shows was not there."""
        pods = {one.name for one in self.pods}
        if pods & {series.labels.get("pod"), series.labels.get("exported_pod")}:
            away = self.away
        elif "one" in {series.labels.get("node"), series.labels.get("Hostname")}:
            away = (self.gone, FOREVER - ORIGIN)
        else:
            return series
        low, high = (1000 * (ORIGIN + at) for at in away)
        kept = []
        for one in series.segments:
            kept.append(one._replace(end_ms=min(one.end_ms, low)))
            value = one.value + one.slope * max(0, high - one.start_ms)
            kept.append(one._replace(start_ms=max(one.start_ms, high), value=value))
        return series._replace(segments=[one for one in kept if one.end_ms > one.start_ms])


class NodeLives(Signals):
    """The series of nodes one after another, each with its pods."""

    def __init__(self, scenario: Small, lives: Sequence[NodeLife]) -> None:
        super().__init__(scenario)
        self._lives = [(life.scenario(is_first=not n), life) for n, life in enumerate(lives)]

    def series(
        self,
        metric: str,
        low_ms: int,
        high_ms: int,
        *,
        wanted: Match = lambda _: True,
        of: ClusterFilter = lambda _: True,
    ) -> Iterator[Series]:
        found: dict[tuple[tuple[str, str], ...], Series] = {}
        for scenario, life in self._lives:
            for one in signals._series(scenario, metric, low_ms, high_ms, wanted):
                cut = life.shown(one)
                # As in Prometheus, what has the same labels is one series.
                key = tuple(sorted(cut.labels.items()))
                known = found.setdefault(key, cut)
                if known is not cut:
                    known.segments.extend(cut.segments)
        yield from found.values()


def catalog(url: str) -> str:
    """Return the catalog of both models, whose cluster is known by series alone."""
    tiers = "".join(
        f"  - name: {name}\n    sharing: exclusive\n    resources: [nvidia.com/gpu]\n"
        f"    node_selector: {{nvidia.com/gpu.product: {product}}}\n    promise: A whole GPU.\n"
        for name, product in (("a100", PRODUCT), ("a10", A10.product))
    )
    return (
        f'clusters:\n  - name: lab\n    prometheus: {{url: "{url}", matchers: {{cluster: lab}}}}\n'
        f"tiers:\n{tiers}"
        "teams:\n  - {name: vision, cost_center: CC-1, namespaces: [vision], "
        "entitlements: {a100: 4}}\n"
        "report: {time_zone: UTC, currency: USD}\n"
    )


@contextmanager
def collected(door: Proxy, order: str, *lives: NodeLife) -> Iterator[None]:
    """Collect the hours of nodes that have lived so; what is written is undone at the end."""
    world = World(lives[0].scenario(is_first=True), START, catalog)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("simulator.server.Signals", partial(NodeLives, lives=lives))
        with collecting(door, world=world) as portal:
            hours = [Window(HOURS[0].start, HOURS[-1].end)] if order == "at once" else HOURS
            portal.move_to(HOURS[-1].end + timedelta(minutes=10))
            for hour in hours[::-1] if order == "backwards" else hours:
                collect_window("lab", hour, now=portal.now(), source=portal.source)
            yield


def hours_of(name: str, tier: str) -> list[float]:
    """Return an amount of the node `one` in each hour, in GPU-hours."""
    rows = NodeHour.objects.filter(node__name="one", tier__name=tier).order_by("hour")
    sums = dict(rows.values_list("hour").annotate(sum=Sum(name)))
    return [(sums.get(hour.start) or 0) / NANO for hour in HOURS]


def assert_conserved() -> None:
    """Assert that in each hour all capacity is somewhere, and all that is held is some pod's."""
    keys = ("hour", "tier__name", "gpu_model__name")
    names = {*ALLOCATED_PARTS, *CAPACITY_PARTS, "allocated"}
    for rows in (TierHour.objects.order_by("pk"), NodeHour.objects.order_by("pk")):
        for row in rows:
            assert row.capacity == sum(getattr(row, name) for name in CAPACITY_PARTS)
            assert row.allocated == sum(getattr(row, name) for name in ALLOCATED_PARTS)
            assert min(getattr(row, name) for name in names) >= 0
    held = {
        tuple(key): held
        for *key, held in PodHour.objects.values_list(*keys).annotate(Sum("allocated"))
    }
    sums = {
        tuple(key): held
        for *key, held in TierHour.objects.values_list(*keys).annotate(Sum("allocated"))
        if held
    }
    assert held == sums


# ---------------------------------------------------------------- nodes of one name

OLD = a100_node(seed="old", name="one", position=1, gpus=4, created=ORIGIN, labels={})
GONE, MADE = 6000, 6300
"""The old node goes 40 minutes into the second hour, the new one is there 5 minutes later."""


def new_node(gpus: int, *, model: str) -> Node:
    at = ORIGIN + MADE
    if model == "a10":
        return gpu_node(seed="new", name="one", position=2, gpu=A10, gpus=gpus, created=at)
    return a100_node(seed="new", name="one", position=2, gpus=gpus, created=at, labels={})


@pytest.mark.parametrize(
    ("gpus", "model", "order"), thinned((8, 2), ("a100", "a10"), ORDERS, together=2)
)
def test_a_node_that_is_made_again_has_its_own_gpus_and_the_old_one_its_own(
    door: Proxy, order: str, gpus: int, model: str
) -> None:
    before = pod("before", bound=60, finished=GONE, deleted=GONE, devices=(0, 1))
    after = pod("after", created=MADE + 60, bound=MADE + 90, devices=(0, 1))
    lives = NodeLife(OLD, [before], GONE), NodeLife(new_node(gpus, model=model), [after])
    with collected(door, order, *lives):
        old, new = [4.0, 4 * 40 / 60, 0.0], [0.0, gpus * 15 / 60, float(gpus)]
        both = [a + b for a, b in zip(old, new, strict=True)]
        expected = (
            {"a100": both, "a10": [0.0] * 3} if model == "a100" else {"a100": old, "a10": new}
        )
        near = 2 * SCRAPE * max(gpus, 4)
        assert hours_of("capacity", "a100") == pytest.approx(expected["a100"], abs=near)
        assert hours_of("capacity", "a10") == pytest.approx(expected["a10"], abs=near)
        held = [
            a + b for a, b in zip(*(hours_of("allocated", t) for t in ("a100", "a10")), strict=True)
        ]
        assert held == pytest.approx(
            [2 * 59 / 60, 2 * 40 / 60 + 2 * 13.5 / 60, 2.0], abs=2 * SCRAPE
        )
        assert_conserved()


# ---------------------------------------------------------------- uids of pods

SPANS = {
    "in one hour": ((60, 1200), (2000, 9000)),
    "in the next hour": ((60, 3000), (4500, 6000)),
}
"""Seconds at which each of the two runs."""


@pytest.mark.parametrize(
    ("spans", "name", "order"), thinned(SPANS, ("static", "other"), ORDERS, together=2)
)
def test_of_pods_of_one_uid_the_later_one_counts_and_nothing_is_made_up(
    door: Proxy, order: str, spans: str, name: str
) -> None:
    """No API server gives a uid twice; whoever does so loses time of the first, and no sums."""
    first, second = SPANS[spans]
    lives = [
        _with_uid(pod("static", created=first[0] - 30, bound=first[0], finished=first[1])),
        _with_uid(pod(name, created=second[0] - 30, bound=second[0], finished=second[1])),
    ]
    with collected(door, order, NodeLife(OLD, lives)):
        assert_conserved()
        held = hours_of("allocated", "a100")
        least = held_by(second)
        if name == "other" and second[0] < 3600:
            # Devices name a pod that is not known any more: such an hour has no figures.
            hour = CollectionWindow.objects.get(hour=START)
            assert "sources contradict each other" in hour.error
            least[0] = 0.0
        assert_between(least, held, held_by(first, second))


def assert_between(least: list[float], held: list[float], most: list[float]) -> None:
    """Assert that each hour has as many GPU-hours as are there at least, and at most."""
    for low, found, high in zip(least, held, most, strict=True):
        assert low - 2 * SCRAPE <= found <= high + 2 * SCRAPE, (least, held, most)


def _with_uid(one: Pod) -> Pod:
    return replace(one, uid="uid")


def held_by(*spans: tuple[int, int]) -> list[float]:
    """Return for how many hours of each hour some spans of seconds last."""
    return [
        sum(max(0, min(b, 3600 * (n + 1)) - max(a, 3600 * n)) for a, b in spans) / 3600
        for n in range(len(HOURS))
    ]


# In one hour, over the end of one, and for a whole one.
@pytest.mark.parametrize(
    ("away", "order"), thinned(((1200, 3000), (3000, 4500), (3000, 8000)), ORDERS)
)
def test_a_pod_that_is_restored_with_its_uid_counts_while_it_is_there(
    door: Proxy, order: str, away: tuple[int, int]
) -> None:
    """The API server is set back to an earlier state: the pod that was deleted is there again.

    Series alone cannot tell this from a kube-state-metrics of which a shard was away: the hole in
    the pod's series counts as held, too.
    """
    one = pod("train", created=30, bound=60)
    with collected(door, order, NodeLife(OLD, [one], away=away)):
        assert_conserved()
        end = 3600 * len(HOURS)
        held = hours_of("allocated", "a100")
        assert_between(held_by((60, away[0]), (away[1], end)), held, held_by((60, end)))


# ---------------------------------------------------------------- pods within a minute


@pytest.mark.parametrize(("seconds", "order"), thinned((20, 45, 70), ORDERS))
def test_pods_that_follow_within_a_minute_take_no_more_than_there_is(
    door: Proxy, order: str, seconds: int
) -> None:
    """Each has another name than the one before; the GPU is theirs one after another."""
    at = range(3000, 4800, seconds)
    lives = [
        pod(f"try-{n}", created=a, bound=a, finished=a + seconds - 2, deleted=a + seconds - 2)
        for n, a in enumerate(at)
    ]
    with collected(door, order, NodeLife(OLD, lives)):
        assert_conserved()
        truth = len(at) * (seconds - 2) / 3600
        assert sum(hours_of("allocated", "a100")) <= len(at) * seconds / 3600 + SCRAPE
        if seconds > 30:
            assert sum(hours_of("allocated", "a100")) == pytest.approx(truth, rel=0.1)
        busy = TierHour.objects.aggregate(busy=Sum("busy"), stray=Sum("unattributed"))
        assert sum(busy.values()) <= NANO * 0.5 * len(at) * seconds / 3600
