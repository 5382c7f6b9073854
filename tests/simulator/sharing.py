"""Small fleets of nodes that share their GPUs in every way, made by hand."""

from collections.abc import Iterator, Mapping, Sequence

from apps.accounts.domain.structs import replace
from simulator.epochs import ActivitySteps, Epoch
from simulator.fleet import (
    FOREVER,
    FULL_METRICS,
    GPU,
    GPU_SHARED,
    LINGER_SECONDS,
    MIG_PREFIX,
    Claim,
    Controller,
    Exporter,
    Node,
    Pod,
    Sharing,
)
from simulator.machines import A30, A100, H100, L4, L40S, T4, gpu_node
from simulator.prometheus.evaluate import RawRow, Times, evaluate, raw_samples
from simulator.prometheus.promql import Selector, parse
from simulator.prometheus.signals import Signals
from simulator.scenarios.base import Namespace, Quota, Scenario
from tests.simulator.small import ORIGIN

OWNER = Controller("Job", "work", "vision", "uid-of-work", ORIGIN)
Version = tuple[int, int, int]


def exporter(version: Version = (4, 4, 0), **settings: object) -> Exporter:
    """Return an exporter with every metric."""
    return Exporter(**{"version": version, "metrics": FULL_METRICS, **settings})  # type: ignore[arg-type]


def tenant(
    name: str,
    node: str,
    *,
    devices: Sequence[int] = (0,),
    instances: Sequence[int] = (),
    units: int = 1,
    resource: str = GPU,
    begin: int = 0,
    end: int = FOREVER,
    activity: float = 0.5,
    memory_mib: int = 4000,
    watts: float = 60.0,
    claim: Claim | None = None,
) -> Pod:
    """Return a pod that is bound at once and starts then; times are seconds after the origin."""
    finished = end if end >= FOREVER else ORIGIN + end
    return Pod(
        uid=f"uid-of-{name}",
        name=name,
        namespace="vision",
        owner=OWNER,
        units=units,
        created=ORIGIN + begin,
        bound=ORIGIN + begin,
        started=ORIGIN + begin,
        finished=finished,
        deleted=finished if finished >= FOREVER else finished + LINGER_SECONDS,
        node=node,
        devices=tuple(devices),
        instances=tuple(instances),
        activity=activity,
        memory_mib=memory_mib,
        power_watts=watts,
        sm_active=activity / 2,
        resource=resource,
        claim=claim,
    )


def claim(
    name: str, node: str, *, devices: Sequence[int], instances: Sequence[int] = (), cls: str = "gpu"
) -> Claim:
    return Claim(
        name=name,
        namespace="vision",
        uid=f"uid-of-{name}",
        device_class=f"{cls}.nvidia.com",
        created=ORIGIN,
        allocated=ORIGIN,
        node=node,
        devices=tuple(devices),
        instances=tuple(instances),
    )


class Fleet(Scenario):
    """Nodes and what is on them, from the origin on."""

    name = "fleet"
    title = "nodes of every kind"

    def __init__(
        self,
        nodes: Sequence[Node],
        pods: Sequence[Pod] = (),
        *,
        claims: Sequence[Claim] = (),
        strays: Sequence[Pod] = (),
        limits: Mapping[str, int] | None = None,
    ) -> None:
        self.seed = "fleet"
        self.begins = ORIGIN
        self.nodes = list(nodes)
        self.namespaces = [Namespace("vision", "uid-of-vision", ORIGIN)]
        keys = tuple(limits or {})
        self.quotas = [Quota("vision", "gpus", "uid-of-quota", ORIGIN, keys)] if keys else []
        self.controllers = [OWNER]
        self.teams = []
        hard = {
            f"vision/{key}": ActivitySteps((ORIGIN,), (n,)) for key, n in (limits or {}).items()
        }
        self._epoch = Epoch(ORIGIN, FOREVER, pods=pods, hard=hard, claims=claims, strays=strays)

    def epochs(self, start: int, end: int) -> Iterator[Epoch]:
        if end >= ORIGIN:
            yield self._epoch


def shared_node(setup: Exporter, *, renamed: bool = False, gpus: int = 2) -> Node:
    """Return a node of L4 GPUs with four replicas each."""
    return gpu_node(
        seed="fleet", name="shared", position=1, gpu=L4, gpus=gpus, created=ORIGIN,
        sharing=Sharing.TIME_SLICED, replicas=4, renamed=renamed, exporters=(setup,),
    )  # fmt: skip


def mig_node(setup: Exporter) -> Node:
    """Return a node with a GPU of two halves less a slice, one of sevenths and a whole one."""
    return gpu_node(
        seed="fleet", name="mig", position=2, gpu=A100, gpus=3, created=ORIGIN,
        sharing=Sharing.MIG_MIXED, exporters=(setup,),
        layouts=(("3g.40gb", "3g.40gb"), ("1g.10gb",) * 7),
    )  # fmt: skip


def every_kind(setup: Exporter | None = None) -> Fleet:
    """Return a fleet with a node of each kind, and changing tenants.

    Each node has an exporter of its own sort, or all are set up as `setup`.
    """
    nodes = [
        gpu_node(seed="fleet", name="whole", position=3, gpu=H100, gpus=2, created=ORIGIN,
                 exporters=(exporter((4, 8, 3), honor_labels=True, job="honored"),)),
        shared_node(exporter((4, 8, 2), virtual_gpus=True, resource_names=(GPU_SHARED,), job="s"),
                    renamed=True),
        mig_node(exporter((4, 6, 0), job="mig")),
        gpu_node(seed="fleet", name="single", position=4, gpu=A30, gpus=1, created=ORIGIN,
                 sharing=Sharing.MIG_SINGLE, layouts=(("2g.12gb", "2g.12gb"),),
                 exporters=(exporter((4, 8, 3), job="single", virtual_gpus=True),)),
        gpu_node(seed="fleet", name="old", position=5, gpu=T4, gpus=2, created=ORIGIN,
                 sharing=Sharing.TIME_SLICED, replicas=4,
                 exporters=(exporter((3, 3, 0), interval_ms=60_000, job="old"),)),
        gpu_node(seed="fleet", name="mps", position=6, gpu=L40S, gpus=2, created=ORIGIN,
                 sharing=Sharing.MPS, replicas=4,
                 exporters=(exporter((4, 8, 1), virtual_gpus=True, interval_ms=15_000,
                                     job="mps"),)),
        gpu_node(seed="fleet", name="dra", position=7, gpu=H100, gpus=2, created=ORIGIN,
                 sharing=Sharing.DRA, layouts=((), ("3g.40gb", "3g.40gb")),
                 exporters=(exporter((4, 8, 3), dra=True, job="dra"),)),
    ]  # fmt: skip
    if setup is not None:
        nodes = [replace(node, exporters=(setup,)) for node in nodes]
    whole, part = claim("c-1", "dra", devices=(0,)), claim("c-2", "dra", devices=(1,),
                                                           instances=(1,), cls="mig")  # fmt: skip
    mig = f"{MIG_PREFIX}3g.40gb"
    pods = [
        tenant("a", "whole", devices=(0, 1), units=2, begin=400, end=5000, activity=0.9),
        tenant("b", "shared", resource=GPU_SHARED, end=4000, activity=0.25),
        tenant("c", "shared", resource=GPU_SHARED, begin=900, end=6000, activity=0.4),
        tenant("d", "mig", resource=mig, instances=(0,), begin=100, activity=0.8),
        tenant("e", "mig", resource=mig, instances=(1,), begin=2000, end=4400, activity=0.3),
        tenant("f", "single", instances=(1,), activity=0.6),
        tenant("g", "old", begin=60, activity=0.3),
        tenant("h", "old", begin=1000, end=7000, activity=0.5),
        tenant("i", "mps", begin=60, end=3333, activity=0.7),
        tenant("j", "mps", begin=1700, activity=0.6),
        tenant("k", "dra", claim=whole, resource="gpu.nvidia.com", begin=50, activity=0.45),
        tenant("l", "dra", claim=whole, resource="gpu.nvidia.com", begin=50, activity=0.15),
        tenant("m", "dra", claim=part, resource="mig.nvidia.com", devices=(1,), instances=(1,)),
    ]
    stray = tenant("n", "shared", devices=(1,), begin=1200, activity=0.77)
    return Fleet(nodes, pods, claims=[whole, part], strays=[_unseen(stray)])


def crowded(setup: Exporter) -> Fleet:
    """Return `every_kind` with more on it: devices change hands, and some hold and do nothing.

    All exporters are set up as `setup`.
    """
    fleet = every_kind(setup)
    (epoch,) = fleet.epochs(ORIGIN, ORIGIN)
    small = f"{MIG_PREFIX}1g.10gb"
    late = replace(
        claim("c-3", "dra", devices=(1,), instances=(0,), cls="mig"),
        created=ORIGIN + 3900, allocated=ORIGIN + 3900,
    )  # fmt: skip
    pods = [
        tenant("o", "whole", begin=5300, activity=0.2),
        tenant("p", "single", instances=(0,), begin=3000, end=6500, activity=0.9),
        tenant("q", "old", devices=(1,), begin=200, end=5000, activity=0.1),
        tenant("r", "dra", claim=late, resource="mig.nvidia.com", devices=(1,), instances=(0,),
               begin=3900, activity=0.7),
        tenant("s", "mps", devices=(1,), begin=500, activity=0.0),
        tenant("t", "mig", resource=small, devices=(1,), instances=(2,), begin=1500, activity=1.0),
        tenant("u", "mig", resource=small, devices=(1,), instances=(5,), end=4000, activity=0.0),
    ]  # fmt: skip
    claims = [*epoch.claims, late]
    return Fleet(fleet.nodes, [*epoch.pods, *pods], claims=claims, strays=epoch.strays)


def _unseen(pod: Pod) -> Pod:
    return Pod(
        uid="", name="", namespace="", owner=pod.owner, units=1, created=pod.created,
        started=pod.started, node=pod.node, devices=pod.devices, activity=pod.activity,
        memory_mib=pod.memory_mib, power_watts=pod.power_watts,
    )  # fmt: skip


def rows(scenario: Scenario, metric: str, at: int = 600) -> list[tuple[Mapping[str, str], float]]:
    """Return (labels, value) of what an instant query sees some seconds after the origin."""
    at_ms = (ORIGIN + at) * 1000
    found = evaluate(parse(metric), Times(at_ms, 1, 1), Signals(scenario), until_ms=at_ms)
    return [(dict(row.labels), row.values[0]) for row in found]


def samples(scenario: Scenario, query: str, at: int) -> list[RawRow]:
    """Return the raw samples of a range selector some seconds after the origin."""
    selector = parse(query)
    assert isinstance(selector, Selector)
    at_ms = (ORIGIN + at) * 1000
    return raw_samples(selector, at_ms, Signals(scenario), until_ms=at_ms)
