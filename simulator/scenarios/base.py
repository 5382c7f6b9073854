"""What every scenario gives: its fixed parts, and epochs of pods over time."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from threading import RLock
from typing import NamedTuple

from msgspec import Struct, field

from simulator import identity
from simulator.epochs import NEVER, ActivitySteps, Epoch
from simulator.fleet import GPU, LINGER_SECONDS, Controller, Node, Sharing


class Team(Struct, frozen=True):
    """A team of the catalog that fits the scenario; `entitlement` in GPUs of the first tier.

    `entitlements` has those of other tiers by name; where it is not empty it holds alone.
    """

    name: str
    namespaces: tuple[str, ...]
    entitlement: int
    cost_center: str
    leads: tuple[str, ...] = ()
    monthly_gpu_hours: int = 0
    monthly_money: int = 0
    entitlements: Mapping[str, float] = field(default_factory=dict)


class Tier(Struct, frozen=True):
    """A service tier of the catalog that fits the scenario."""

    name: str
    sharing: str
    promise: str
    resources: tuple[str, ...] = ()
    device_classes: tuple[str, ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    allowed_teams: tuple[str, ...] = ()
    queue_time: str = ""


class Owned(Struct, frozen=True):
    """What hardware cost that was bought, as the catalog has it."""

    price: str
    residual: str
    gpus: int
    years: int
    per_kwh: str
    pue: str


class GpuRate(Struct, frozen=True):
    """What a GPU of a model costs in USD where it is paid for in a way: by the hour, or bought."""

    model: str
    capacity_type: str
    per_gpu_hour: str = ""
    owned: Owned | None = None


class PriceConfirmation(Struct, frozen=True):
    """Who confirmed the prices of a catalog, on which day, and where prices per hour are from."""

    source: str
    by: str
    on: str


_REQUESTS = "requests."
GPU_KEY = f"{_REQUESTS}{GPU}"
DEVICES = ".deviceclass.resource.k8s.io/devices"
"""Ends the key that limits how many devices of a class the claims of a namespace ask for."""


class Quota(Struct, frozen=True):
    """A ResourceQuota; its limits over time are in the epochs.

    A key without the prefix `requests.` is taken by the API server, counts no pods and limits
    nothing.
    """

    namespace: str
    name: str
    uid: str
    created: int
    keys: tuple[str, ...] = (GPU_KEY,)

    def counts(self, epoch: Epoch | None, key: str) -> Iterator[tuple[str, ActivitySteps]]:
        """Yield (`hard` or `used`, count over an epoch) of a key."""
        yield "hard", epoch.hard.get(hard_key(self.namespace, key), NEVER) if epoch else NEVER
        if key.startswith(_REQUESTS):
            resource = key.removeprefix(_REQUESTS)
            yield "used", epoch.used_of(self.namespace, resource) if epoch else NEVER
        if key.endswith(DEVICES):
            device_class = key.removesuffix(DEVICES)
            yield "used", epoch.claimed_of(self.namespace, device_class) if epoch else NEVER


class Queue(Struct, frozen=True):
    """A ClusterQueue and the LocalQueue that leads to it from the namespace of a team.

    `nominal` is the team's share of a resource on the nodes of a flavor; beyond it the queue may
    have as much as `borrowing` of what others of the cohort lend, each at most its `lending`. In a
    `strict` one no Workload is passed over.
    """

    name: str
    local: str
    namespace: str
    flavor: str
    resource: str
    nominal: int
    created: int
    strict: bool = False
    borrowing: int = 0
    lending: int = 0

    @property
    def most(self) -> int:
        """What it can have at most."""
        return self.nominal + self.borrowing


def hard_key(namespace: str, key: str) -> str:
    """Return under what an epoch has the limit of a key."""
    return namespace if key == GPU_KEY else f"{namespace}/{key}"


class Service(Struct, frozen=True):
    """A Deployment that serves a model, with what each pod does a second where it is fully active.

    `engine` says which series it exports. Of the pods on the GPUs (indexes) `restarting` the server
    starts again at `restarts_at`, seconds of every day; those on `silent` ones are not scraped.
    `ttft` is its objective in the catalog; empty: the portal's own.
    """

    namespace: str
    name: str
    engine: str
    model: str
    tokens_in: float = 2400.0
    tokens_out: float = 900.0
    requests: float = 4.0
    restarting: tuple[int, ...] = ()
    restarts_at: int = 0
    silent: tuple[int, ...] = ()
    ttft: str = ""


class Namespace(Struct, frozen=True):
    name: str
    uid: str
    created: int
    labels: Mapping[str, str] = field(default_factory=dict)


class NodeGroup(NamedTuple):
    """A node group of cluster-autoscaler, in nodes; the name of each of its nodes begins so."""

    name: str
    nodes: str
    least: int
    most: int


class Provisioning(NamedTuple):
    """A ProvisioningRequest of so many pods, with what cluster-autoscaler said of it last."""

    namespace: str
    name: str
    pods: int
    created: int
    condition: str
    status: str
    reason: str
    message: str


class SiteEnergy(NamedTuple):
    """What the site of a scenario's clusters adds to measured energy, and the carbon of a kWh."""

    pue: str
    carbon_g_per_kwh: str


class Scenario(ABC):
    """A cluster over time; the same arguments always give the same cluster.

    `begins` is when its nodes, namespaces and lasting controllers were made, `seed` what every
    name and chance is derived from. `prices` are in USD by model, on demand, `rates` those of
    other ways to pay; of scenarios without tiers the catalog has the one tier of the worked
    example. `queues` are those that its pods go through, `flavors` the node labels of what these
    give out by name; `queue_resources` whether Kueue shows their resources and LocalQueues, which
    is to be switched on. `node_pools` are those of Karpenter with the GPUs that each may have,
    `node_groups` those of cluster-autoscaler, `provisioning` what is requested of it.
    `services` export what they serve. The `checkpoint_metric` is that of pods that do not annotate
    their checkpoints. `others` are clusters of which the same server has metrics, each by the name
    of its `cluster`, and no API answers.
    """

    name: str
    cluster: str = "lab"
    title: str
    seed: str
    begins: int
    nodes: Sequence[Node]
    namespaces: Sequence[Namespace]
    quotas: Sequence[Quota]
    controllers: Sequence[Controller]
    teams: Sequence[Team]
    tiers: Sequence[Tier] = ()
    prices: Mapping[str, str] = {}
    confirmation: PriceConfirmation | None = None
    site: SiteEnergy | None = None
    rates: Sequence[GpuRate] = ()
    queues: Sequence[Queue] = ()
    flavors: Mapping[str, Mapping[str, str]] = {}
    queue_resources: bool = True
    node_pools: Mapping[str, int] = {}
    node_groups: Sequence[NodeGroup] = ()
    provisioning: Sequence[Provisioning] = ()
    services: Sequence[Service] = ()
    checkpoint_metric: str = ""
    others: Sequence["Scenario"] = ()

    def made_namespaces(self, spaces: Iterable[str]) -> list[Namespace]:
        """Return the namespaces that every cluster has, and `spaces`."""
        return [
            Namespace(name, identity.uid(self.seed, "namespace", name), self.begins)
            for name in ("default", "gpu-operator", "kube-system", "monitoring", *spaces)
        ]

    def made_quotas(self, spaces: Iterable[str], keys: tuple[str, ...] = (GPU_KEY,)) -> list[Quota]:
        """Return a quota of each namespace that limits `keys`."""
        return [
            Quota(space, "gpus", identity.uid(self.seed, "quota", space), self.begins, keys)
            for space in spaces
        ]

    @property
    def claims_served(self) -> bool:
        """Whether its API server has ResourceClaims with something behind them."""
        return any(node.sharing is Sharing.DRA for node in self.nodes)

    @abstractmethod
    def epochs(self, start: int, end: int) -> Iterator[Epoch]:
        """Yield the epochs that touch start..end, oldest first."""

    def epoch_at(self, at: int) -> Epoch | None:
        """Return the epoch of an instant; None before the first."""
        return next((epoch for epoch in self.epochs(at, at) if epoch.start <= at < epoch.end), None)

    def controllers_between(self, start: int, end: int) -> Iterator[Controller]:
        """Yield the controllers that exist at some time in start..end (both included)."""
        passing = (
            controller for epoch in self.epochs(start, end) for controller in epoch.controllers
        )
        for controller in chain(self.controllers, passing):
            if controller.created <= end and controller.deleted > start:
                yield controller

    def counted(self, controller: Controller) -> Controller:
        """Return the controller whose pods are counted for it: a Deployment has one ReplicaSet."""
        return self._replica_sets.get(controller.uid, controller)

    @cached_property
    def _replica_sets(self) -> Mapping[str, Controller]:
        return {
            controller.parent.uid: controller
            for controller in self.controllers
            if controller.kind == "ReplicaSet" and controller.parent is not None
        }


class EpochScenario(Scenario):
    """A scenario whose epochs follow each other without a gap, by number.

    `first_epoch` is when epoch 0 starts and ends, `epoch_seconds` how long each of the others is.
    An epoch takes seconds to make, so `epochs_cached` of them are kept.
    """

    first_epoch: tuple[int, int]
    epoch_seconds: int
    epochs_cached = 3
    lingering = LINGER_SECONDS
    """How long an epoch's last pods are still to be seen after it."""

    @abstractmethod
    def make_epoch(self, number: int, start: int, end: int) -> Epoch:
        """Make the epoch of that number, which goes from start to end."""

    def epoch_number(self, at: int) -> int:
        """Return the number of the epoch that a time lies in; negative before epoch 0."""
        start, end = self.first_epoch
        if at >= end:
            return 1 + (at - end) // self.epoch_seconds
        return min(0, (at - start) // self.epoch_seconds)

    def epoch_span(self, number: int) -> tuple[int, int]:
        """Return when an epoch starts and ends."""
        start, end = self.first_epoch
        if not number:
            return start, end
        start = (start if number < 0 else end - self.epoch_seconds) + number * self.epoch_seconds
        return start, start + self.epoch_seconds

    def epochs(self, start: int, end: int) -> Iterator[Epoch]:
        if end < self.begins:
            return
        first = self.epoch_number(max(start - self.lingering, self.begins))
        for number in range(first, self.epoch_number(end) + 1):
            # Several requests at once must not each make the same epoch.
            with _MAKING:
                epoch = self._epoch(number)
            yield epoch

    @cached_property
    def _epoch(self) -> Callable[[int], Epoch]:
        return lru_cache(maxsize=self.epochs_cached)(
            lambda number: self.make_epoch(number, *self.epoch_span(number))
        )


_MAKING = RLock()
