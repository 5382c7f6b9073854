"""One physical truth read through exporters of every set-up, and the ledgers made of it.

A fleet has a node of every way to share GPUs. What holds its devices comes from the Kubernetes
API or from kube-state-metrics series, what they do from the series of its exporters; all through
the real clients.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters.adapters.kubernetes.api import KubernetesApi
from apps.clusters.adapters.prometheus.client import PrometheusApi
from apps.clusters.adapters.prometheus.http_api import PrometheusConfig
from apps.clusters.adapters.prometheus.source import PrometheusSource
from apps.clusters.domain.devices.mig import mig_part
from apps.clusters.domain.pods.kube_objects import NodeState, lacks_finish, node_state, pod_record
from apps.clusters.domain.pods.ledger import NodeInterval, PodRecord, nearest_owner
from apps.clusters.domain.tiers import GpuSharing, TierRule
from apps.clusters.domain.window import Window, clip, seconds, union
from apps.clusters.ports import ClusterSource, DeviceAnswer, MetricsSource
from apps.clusters.services.catalog import assign
from apps.clusters.services.pods.pod_store import PodObservation, PodStore
from apps.clusters.services.watch.claims import ClaimWatch, discovered_claims
from apps.usage.domain.amounts import Amounts
from apps.usage.domain.attribution.allocations import PodLedger
from apps.usage.domain.attribution.attribute import SampleInterval
from apps.usage.domain.attribution.attribute_hour import (
    HourDevices,
    HourFacts,
    HourInput,
    attribute_hour,
)
from apps.usage.domain.attribution.gpu_classes import BoundTier
from simulator.fleet import GPU, GPU_SHARED, MIG_PREFIX, Device, Exporter, Node
from simulator.scenarios.base import Scenario
from tests.served_lab import served_lab
from tests.simulator.scenario_truth import Doing, Holding, doings, holdings
from tests.simulator.sharing import Version, exporter
from tests.simulator.small import ORIGIN

HOURS = (ORIGIN, ORIGIN + 3600)
END = ORIGIN + 7200
WINDOW = Window(datetime.fromtimestamp(ORIGIN, UTC), datetime.fromtimestamp(ORIGIN + 7200, UTC))
IDLE_BELOW = 0.1
_LOOK_SECONDS = 240
"""Pods linger for five minutes: whoever looks this often misses none."""

_EDGE_HOURS = 60 / 3600
_UNSEEN_HOURS = 120 / 3600

KINDS: Mapping[str, tuple[str, str]] = {
    "exclusive": ("whole", "ao"),
    "mig-single": ("single", "fp"),
    "mig-mixed": ("mig", "detu"),
    "time-sliced-renamed": ("shared", "bc"),
    "time-sliced": ("old", "ghq"),
    "mps": ("mps", "ijs"),
    "dra-whole": ("dra", "kl"),
    "dra-mig": ("dra", "mr"),
}
"""Kind → its node in the fleet and the names of its pods, each a letter."""
VERSIONS: tuple[Version, ...] = ((3, 3, 0), (4, 4, 0), (4, 8, 1), (4, 8, 2), (4, 8, 3))
LEDGERS = ("api", "metrics")

RULES = (
    TierRule("mig-3g", GpuSharing.MIG, (f"{MIG_PREFIX}3g.40gb",)),
    TierRule("mig-1g", GpuSharing.MIG, (f"{MIG_PREFIX}1g.10gb",)),
    TierRule("shared", GpuSharing.TIME_SLICED, (GPU_SHARED,)),
    TierRule(
        "mps", GpuSharing.MPS, (GPU,), node_selector={"nvidia.com/gpu.sharing-strategy": "mps"}
    ),
    TierRule(
        "sliced",
        GpuSharing.TIME_SLICED,
        (GPU,),
        node_selector={"nvidia.com/gpu.sharing-strategy": "time-slicing"},
    ),
    TierRule("slices", GpuSharing.MIG, (GPU,), node_selector={"nvidia.com/mig.strategy": "single"}),
    TierRule("gold", GpuSharing.EXCLUSIVE, (GPU,)),
    TierRule("claimed", GpuSharing.DRA, device_classes=("gpu.nvidia.com",)),
    TierRule("claimed-mig", GpuSharing.DRA, device_classes=("mig.nvidia.com",)),
)
_LABEL_KEYS = frozenset(key for rule in RULES for key in rule.node_selector)


class SetUp(NamedTuple):
    """How all exporters of a fleet are set up."""

    version: Version
    honor_labels: bool
    virtual_gpus: bool

    def __str__(self) -> str:
        words = [".".join(map(str, self.version))]
        words += ["honor-labels"] * self.honor_labels + ["virtual-gpus"] * self.virtual_gpus
        return "-".join(words)

    def exporter(self) -> Exporter:
        """Return it as the lab has it.

        Who turns virtual GPUs on lists the renamed resource, too; without it the exporter names
        nobody on such a GPU.
        """
        return exporter(
            self.version,
            honor_labels=self.honor_labels,
            virtual_gpus=self.virtual_gpus,
            resource_names=(GPU_SHARED,) if self.virtual_gpus else (),
            dra=self.version >= (4, 4, 0),
        )


# ---------------------------------------------------------------- what is true


class PodTruth(Struct):
    """What a pod held and did in an hour, in GPU-hours, and how far a reading of it may be off.

    `even_on_gpu` is what dividing each device evenly among its tenants gives it, `even` the
    least and the most where it is not known on which of its node's devices each of them is.
    `alone` is what it held while it was the only one there. `slack` is what it does in two scrapes
    at each of its ends, `unseen` what it holds in two minutes at each: who had less of a slot may
    have met no scrape.
    """

    node: str = ""
    allocated: float = 0.0
    did: float = 0.0
    even_on_gpu: float = 0.0
    even: tuple[float, float] = (0.0, 0.0)
    alone: float = 0.0
    slack: float = 0.0
    unseen: float = 0.0


class Truth(Struct):
    """An hour of a fleet; `active` and `vanishing` in GPU-hours by node.

    `vanishing` is the part of `active` on GPUs whose rows go while a pod is on another GPU of
    the node, where virtual GPUs are on up to 4.8.1 (facts, section 1.5).
    """

    pods: dict[str, PodTruth]
    active: dict[str, float]
    vanishing: dict[str, float]

    def slack(self, node: str) -> float:
        """Return how far the sum over a node may be off."""
        return math.fsum(pod.slack for pod in self.pods.values() if pod.node == node) + 1e-6


def truth(scenario: Scenario, start: int) -> Truth:
    """Return what is true of the hour that begins at `start`."""
    end = start + 3600
    held = list(holdings(scenario, start, end))
    found: dict[str, PodTruth] = defaultdict(PodTruth)
    for one in held:
        pod = found[one.pod.name]
        pod.node = one.node.name
        pod.allocated += one.gpu_hours
        edges = (one.start > start) + (one.end < end)
        part = _part(one.node, one.device, one.instance)
        pod.slack += edges * _EDGE_HOURS * min(1.0, one.pod.activity) * part
        pod.unseen += edges * _UNSEEN_HOURS * one.gpus
    active: dict[str, float] = defaultdict(float)
    vanishing: dict[str, float] = defaultdict(float)
    names = {one.pod.uid: one.pod.name for one in held}
    for doing in doings(scenario, start, end):
        part = _part(doing.node, doing.device, doing.instance)
        amount = doing.activity * part * (doing.end - doing.start) / 3600
        active[doing.node.name] += amount
        for uid, own in doing.parts.items():
            if uid:
                found[names[uid]].did += own * part * (doing.end - doing.start) / 3600
        if not any(doing.parts):
            node = [h for h in held if h.node == doing.node]
            there = union((max(h.start, doing.start), min(h.end, doing.end)) for h in node)
            vanishing[doing.node.name] += doing.activity * part * seconds(there) / 3600
    for name, pod in found.items():
        _divide(pod, [h for h in held if h.pod.name == name], held, scenario, start)
    return Truth(dict(found), active, vanishing)


def _divide(
    pod: PodTruth,
    own: Sequence[Holding],
    held: Sequence[Holding],
    scenario: Scenario,
    start: int,
) -> None:
    """Work out what dividing evenly gives a pod, slot by slot."""
    least, most, on_gpu = [], [], []
    done = list(doings(scenario, start, start + 3600))
    for slot in (start, start + 1800):
        ways = [
            _evenly(own, [h for h in held if alike(h)], [d for d in done if alike(d)], slot)
            for alike in (partial(_on_the_same, own), partial(_on_the_like, own))
        ]
        on_gpu.append(ways[0])
        least.append(min(ways))
        most.append(max(ways))
    pod.even_on_gpu = math.fsum(on_gpu)
    pod.even = (math.fsum(least), math.fsum(most))
    for mine in own:
        beside = [h for h in held if h.pod != mine.pod and _device(h) == _device(mine)]
        others = union((h.start, h.end) for h in beside)
        shared = seconds(clip(others, mine.start, mine.end))
        pod.alone += mine.gpus * (mine.end - mine.start - shared) / 3600


def _evenly(
    own: Sequence[Holding], held: Sequence[Holding], done: Sequence[Doing], slot: int
) -> float:
    """Return a pod's part of what devices did in a slot, by what each held at the instant."""
    times = {slot, slot + 1800}
    times.update(t for one in held for t in (one.start, one.end))
    times.update(t for one in done for t in (one.start, one.end))
    total = 0.0
    for a, b in pairwise(sorted(t for t in times if slot <= t <= slot + 1800)):
        there = math.fsum(h.gpus for h in held if h.start <= a and h.end >= b)
        mine = math.fsum(h.gpus for h in own if h.start <= a and h.end >= b)
        doing = math.fsum(
            d.activity * _part(d.node, d.device, d.instance)
            for d in done
            if d.start <= a and d.end >= b
        )
        total += doing * mine / there * (b - a) / 3600 if mine else 0.0
    return total


def _on_the_same(own: Sequence[Holding], one: Holding | Doing) -> bool:
    return any(_device(one) == _device(mine) for mine in own)


def _on_the_like(own: Sequence[Holding], one: Holding | Doing) -> bool:
    """Say whether it is about a device that nobody could tell from these without names."""
    return one.node == own[0].node and _profile(one) == _profile(own[0])


def _device(one: Holding | Doing) -> tuple[str, int]:
    return (one.device.uuid, one.instance)


def _profile(one: Holding | Doing) -> str:
    return one.device.instances[one.instance].profile if one.instance >= 0 else ""


def _part(node: Node, device: Device, instance: int) -> float:
    """Return what a device is of its card."""
    return 1.0 if instance < 0 else mig_part(device.instances[instance].profile, node.model)


# ---------------------------------------------------------------- what is read


class _Looks:
    """What is learnt of a cluster by listing everything again and again."""

    def __init__(self) -> None:
        self._pods = PodStore()
        self._states: dict[str, NodeState] = {}
        self._watch: ClaimWatch | None = None
        self._last: float | None = None

    def look(self, source: ClusterSource, at: float) -> None:
        """List what there is at `at`, as `watch` does when it starts."""
        paths = discovered_claims(source)
        watch = self._watch = self._watch or ClaimWatch(paths)
        for path in paths:
            watch.relist(path, source.list(path).items, at, self._last)
        watch.settle(frozenset(name for rule in RULES for name in rule.device_classes), at)
        for item in source.list("/api/v1/nodes").items:
            state = node_state(item, label_keys=_LABEL_KEYS)
            self._states[state.name] = replace(state, devices=watch.of_node(state.name) or ())
        items = source.list("/api/v1/pods").items
        for item in items:
            known = self._pods.get(str(item["metadata"]["uid"]))
            claims = watch.claims_of(item, known.record if known else None)
            record = pod_record(item, owner=nearest_owner(item), claims=claims)
            if record is not None:
                self._pods.apply(PodObservation(record, lacks_finish(item, (), claims)), at)
        self._pods.relist({str(item["metadata"]["uid"]) for item in items}, at, self._last)
        self._last = at

    def ledger(self) -> PodLedger:
        """Return what was learnt; the nodes did not change."""
        assert self._watch is not None
        intervals = [
            NodeInterval(
                state.name, ORIGIN, END, state.capacity, state.allocatable, state.labels,
                state.ready, state.schedulable, devices=state.devices,
            )
            for _, state in sorted(self._states.items())
        ]  # fmt: skip
        pods = [tracked.record for tracked in self._pods.items.values()]
        claims = list(self._watch.claims.changed.values())
        return PodLedger(
            pods, intervals, {pod.uid: self._bound(pod) for pod in pods}, claims=claims
        )

    def _bound(self, pod: PodRecord) -> BoundTier:
        assert self._watch is not None
        labels, devices = self._states[pod.node].labels, self._watch.devices_of(pod.claims)
        given = assign(pod, labels, list(RULES), devices)
        units = sum(pod.requests.values())
        return BoundTier(given.tier, given.gpu_model or "", given.gpu_equivalents / units)


def api_ledger(scenario: Scenario, times: Iterable[int] = ()) -> PodLedger:
    """Return what the API server shows over the window to who looks every few minutes.

    And at these times, too: when a claim was freed is known by looking alone.
    """
    looks = _Looks()
    usual = range(ORIGIN + 1, END + _LOOK_SECONDS, _LOOK_SECONDS)
    for at in sorted({*usual, *(at for at in times if ORIGIN < at < usual[-1])}):
        with served_lab(scenario, at) as url:
            source = KubernetesApi.from_config({"api_server": url})
            looks.look(source, at)
            source.close()
    return looks.ledger()


def source_of(url: str, cluster: str) -> PrometheusSource:
    entry = {"url": url, "matchers": {"cluster": cluster}, "scrape_interval_seconds": 30}
    return PrometheusSource(PrometheusApi(PrometheusConfig.from_catalog(entry)))


def metrics_ledger(source: MetricsSource) -> PodLedger:
    """Return what kube-state-metrics shows."""
    named = sorted({resource for rule in RULES for resource in rule.resources})
    answer = source.ledger(WINDOW, gpu_resources=named, label_keys=sorted(_LABEL_KEYS))
    assert all(answer.covered.values())
    return PodLedger(answer.pods, answer.nodes)


def reckoned(
    ledger: PodLedger, answer: DeviceAnswer, source: MetricsSource, start: int
) -> HourFacts:
    """Return the facts of the hour that begins at `start`."""
    window = Window.hour(datetime.fromtimestamp(start, UTC))
    rows = [row for row in answer.rows if start <= row.slot < start + 3600]
    interval = SampleInterval(answer.scrape_interval_seconds or 30.0, answer.intervals)
    known = HourInput(start, ledger, RULES, lambda: HourDevices(rows, interval))
    facts, _ = attribute_hour(
        known, lambda uuids: source.activity_samples(uuids, window).rows, idle_below=IDLE_BELOW
    )
    return facts


class Reading(Struct, frozen=True):
    """An hour as it was read: amounts by pod name and by node."""

    pods: Mapping[str, Amounts]
    nodes: Mapping[str, Amounts]

    @classmethod
    def of(cls, facts: HourFacts) -> "Reading":
        pods: dict[str, Amounts] = defaultdict(Amounts)
        for pod in facts.pods:
            pods[pod.uid.removeprefix("uid-of-")].add(pod.amounts)
        nodes: dict[str, Amounts] = defaultdict(Amounts)
        for node in facts.nodes:
            nodes[node.node].add(node.amounts)
        return cls(pods, nodes)


def read_all(url: str, cluster: str, api: PodLedger) -> dict[tuple[str, int], Reading]:
    """Return (ledger, hour) → what is read from a server by way of either ledger."""
    source = source_of(url, cluster)
    answer = source.devices(WINDOW)
    ledgers = {"api": api, "metrics": metrics_ledger(source)}
    found = {
        (name, start): Reading.of(reckoned(ledgers[name], answer, source, start))
        for name in LEDGERS
        for start in HOURS
    }
    source.close()
    return found
