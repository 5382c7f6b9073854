"""Clusters as kube-state-metrics would show them, made from pods and nodes known to the second."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

from msgspec import Struct, field

from tests.clusters.openmetrics import HOUR, ORIGIN, SLOT, Series, scrapes, series

HOURS = 3
END = ORIGIN + HOURS * HOUR
# Series go on after the window, as they do when an hour is collected a little later.
LATER = END + 300
PRODUCT = "NVIDIA-A100-SXM4-80GB"


class TruePod(Struct, frozen=True):
    """A pod as it really was; `requests` by container, None: has not happened."""

    name: str
    namespace: str = "vision"
    created: float = ORIGIN - HOUR
    bound: float | None = None
    started: float | None = None
    finished: float | None = None
    deleted: float | None = None
    node: str = "n1"
    requests: Mapping[str, Mapping[str, float]] = field(
        default_factory=lambda: {"main": {"nvidia_com_gpu": 1.0}}
    )
    init_requests: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    sidecars: tuple[str, ...] = ()
    owner: tuple[str, str] | None = None
    phase: str = "Succeeded"
    runs: tuple[tuple[float, float], ...] = ()
    priority: str = ""
    completion: bool = True

    @property
    def uid(self) -> str:
        return f"uid-{self.namespace}-{self.name}-{int(self.created)}"

    @property
    def spans(self) -> tuple[tuple[float, float], ...]:
        """When its containers ran."""
        if self.runs or self.started is None:
            return self.runs
        ends = [t for t in (self.finished, self.deleted) if t is not None]
        return ((self.started, min(ends, default=float("inf"))),)

    def held(self, start: float, end: float) -> float:
        """Return for how many seconds of start..end it held its GPUs."""
        if self.bound is None:
            return 0.0
        until = min(t for t in (self.finished, self.deleted, end) if t is not None)
        return max(0.0, min(until, end) - max(self.bound, start))

    def ran(self, start: float, end: float) -> float:
        """Return for how many seconds of start..end a container ran."""
        return sum(max(0.0, min(b, end) - max(a, start)) for a, b in self.spans)

    @property
    def units(self) -> float:
        return sum(sum(amounts.values()) for amounts in self.requests.values())


Target = Mapping[str, str]


def target(world: str, **labels: str) -> dict[str, str]:
    return {"cluster": world, "job": "kube-state-metrics", "instance": "ksm:8080", **labels}


def pod_series(pod: TruePod, of: Target, times: list[float]) -> Iterator[Series]:
    """Yield the series of one pod at those of the scrape times at which it was there."""
    there = [t for t in times if pod.created <= t < (pod.deleted or float("inf"))]
    own = {**of, "namespace": pod.namespace, "pod": pod.name, "uid": pod.uid}
    bound = float("inf") if pod.bound is None else pod.bound
    ended = float("inf") if pod.finished is None else pod.finished

    def one(metric: str, value: float | Callable[[float], float], at: list[float], **more: str):  # type: ignore[no-untyped-def]
        return series(metric, {**own, **more}, value, at)

    for prefix, requests in (("", pod.requests), ("init_", pod.init_requests)):
        for container, amounts in requests.items():
            for resource, units in amounts.items():
                more = {"container": container, "resource": resource, "unit": "integer"}
                metric = f"kube_pod_{prefix}container_resource_requests"
                yield one(metric, units, [t for t in there if t < bound], node="", **more)
                yield one(metric, units, [t for t in there if t >= bound], node=pod.node, **more)
    for container in pod.sidecars:
        yield one(
            "kube_pod_init_container_info", 1, there, container=container, restart_policy="Always"
        )
    yield one("kube_pod_created", pod.created, there)
    if pod.bound is not None:
        yield one("kube_pod_status_scheduled_time", pod.bound, [t for t in there if t >= bound])
        yield one("kube_pod_start_time", pod.bound + 1, [t for t in there if t >= bound + 1])
    if pod.finished is not None and pod.completion:
        yield one("kube_pod_completion_time", pod.finished, [t for t in there if t >= ended])
    for phase in ("Running", "Succeeded", "Failed"):
        reached = pod.phase == phase
        yield one(
            "kube_pod_status_phase",
            lambda t, r=reached: float(r and t >= ended),  # type: ignore[misc]
            there,
            phase=phase,
        )
    kind, name = pod.owner or ("", "")
    controller = "true" if pod.owner else ""
    yield one(
        "kube_pod_owner",
        1,
        there,
        owner_kind=kind,
        owner_name=name,
        owner_is_controller=controller,
    )
    yield one(
        "kube_pod_info",
        1,
        [t for t in there if t >= bound],
        node=pod.node,
        priority_class=pod.priority,
    )
    yield from _container_series(pod, own, there)


def _container_series(pod: TruePod, own: Target, there: list[float]) -> Iterator[Series]:
    last = pod.spans[-1][1] if pod.spans else 0.0

    def shown(at: float) -> float | None:
        """The start that the container's state shows; none while it waits to restart."""
        for start, end in pod.spans:
            if start <= at < end:
                return start
        return pod.spans[-1][0] if pod.spans and at >= last else None

    for container in pod.requests:
        labels = {**own, "container": container}
        times = [t for t in there if shown(t) is not None]
        yield Series(
            "kube_pod_container_state_started", labels, [(t, float(shown(t) or 0.0)) for t in times]
        )
        yield series(
            "kube_pod_container_status_running",
            labels,
            lambda t: float(any(a <= t < b for a, b in pod.spans)),
            [t for t in there if pod.bound is not None and t >= pod.bound],
        )


class TrueNode(Struct, frozen=True):
    """A node as it really was; `unready` and `cordoned` are spans."""

    name: str
    gpus: float = 8.0
    created: float = ORIGIN - 24 * HOUR
    deleted: float = float("inf")
    unready: tuple[float, float] = (0.0, 0.0)
    cordoned: tuple[float, float] = (0.0, 0.0)
    broken: tuple[float, float] = (0.0, 0.0)
    registered: float = 0.0
    labels: Mapping[str, str] = field(
        default_factory=lambda: {
            "label_nvidia_com_gpu_product": PRODUCT,
            "label_karpenter_sh_capacity_type": "on-demand",
            "label_eks_amazonaws_com_capacity_type": "ON_DEMAND",
        }
    )


def node_series(node: TrueNode, of: Target, times: list[float]) -> Iterator[Series]:
    """Yield the series of one node."""
    there = [t for t in times if node.created <= t < node.deleted]
    own = {**of, "node": node.name}

    def within(span: tuple[float, float]) -> Callable[[float], bool]:
        return lambda t: span[0] <= t < span[1]

    unready, cordoned, broken = within(node.unready), within(node.cordoned), within(node.broken)
    yield series("kube_node_created", own, node.created, there)
    gpu = {**own, "resource": "nvidia_com_gpu", "unit": "integer"}
    offered = [t for t in there if t >= node.registered]
    if node.gpus:
        yield series("kube_node_status_capacity", gpu, node.gpus, offered)
        yield series(
            "kube_node_status_allocatable",
            gpu,
            lambda t: node.gpus - (1.0 if broken(t) else 0.0),
            offered,
        )
    cpu = {**own, "resource": "cpu", "unit": "core"}
    yield series("kube_node_status_capacity", cpu, 64.0, there)
    for status in ("true", "false", "unknown"):
        yield series(
            "kube_node_status_condition",
            {**own, "condition": "Ready", "status": status},
            lambda t, s=status: float((s == "true") != unready(t)) if s != "unknown" else 0.0,  # type: ignore[misc]
            there,
        )
    yield series("kube_node_spec_unschedulable", own, lambda t: float(cordoned(t)), there)
    yield series("kube_node_labels", {**own, **node.labels}, 1.0, there)


def world(
    name: str,
    pods: Iterable[TruePod],
    nodes: Iterable[TrueNode],
    *,
    phase: float = 0.0,
    away: tuple[float, float] = (0.0, 0.0),
    until: float = LATER,
    more: Iterable[Series] = (),
    replicas: int = 1,
) -> Iterator[Series]:
    """Yield a whole cluster, seen by kube-state-metrics except while it was `away`."""
    pods, nodes = list(pods), list(nodes)
    for replica in range(replicas):
        of = target(name, instance=f"ksm-{replica}:8080")
        times = [
            t
            for t in scrapes(ORIGIN - 2 * SLOT, until, phase=phase + replica * 4.5)
            if not away[0] <= t < away[1]
        ]
        yield from chain(
            *(pod_series(pod, of, times) for pod in pods),
            *(node_series(node, of, times) for node in nodes),
        )
    for one in more:
        yield one._replace(labels={**target(name), **one.labels})


Owned = tuple[str, str, str, str, str]


def owners(of: Iterable[Owned], metric: str, label: str) -> Iterator[Series]:
    """Yield owner series: (namespace, name, kind of the owner, its name, controller)."""
    for namespace, name, kind, owner, controller in of:
        labels = {
            "namespace": namespace,
            label: name,
            "owner_kind": kind,
            "owner_name": owner,
            "owner_is_controller": controller,
        }
        yield series(metric, labels, 1.0, scrapes(ORIGIN, LATER))


def churn(count: int, seed: int = 7) -> list[TruePod]:
    """Return pods that come and go at any second; half are deleted while they run."""
    source = random.Random(seed)  # noqa: S311 - made data
    pods = []
    for number in range(count):
        created = ORIGIN + source.uniform(-2 * HOUR, (HOURS - 0.1) * HOUR)
        bound = created + source.choice([0.0, 1.0, source.uniform(0, 2 * HOUR)])
        started = bound + source.uniform(1, 90)
        ended = started + source.choice([source.uniform(60, 900), source.uniform(600, 3 * HOUR)])
        finishes = source.random() < 0.5
        pods.append(
            TruePod(
                name=f"pod-{number}",
                namespace=f"team-{number % 5}",
                created=float(int(created)),
                bound=float(int(bound)),
                started=float(int(started)),
                finished=float(int(ended)) if finishes else None,
                deleted=float(int(ended)) + (source.uniform(60, 7200) if finishes else 0.0),
                node=f"n{number % 20}",
                requests={"main": {"nvidia_com_gpu": float(source.choice([1, 1, 2, 4, 8]))}},
                owner=("Job", f"job-{number % 40}"),
            )
        )
    return pods
