"""A small cluster with everything that happens to pods, made by hand for the lab's tests."""

from collections.abc import Iterator, Sequence

from simulator.epochs import ActivitySteps, Epoch
from simulator.fleet import FOREVER, LINGER_SECONDS, Controller, Pod
from simulator.machines import a100_node
from simulator.scenarios.base import Namespace, Quota, Scenario

ORIGIN = 1_790_812_800
"""Midnight UTC, 2026-10-01."""


def job(name: str = "train") -> Controller:
    return Controller("Job", name, "vision", f"uid-of-{name}", ORIGIN)


def deployment(name: str = "serve") -> tuple[Controller, Controller]:
    """Return a Deployment and its ReplicaSet."""
    parent = Controller("Deployment", name, "vision", f"uid-of-{name}", ORIGIN)
    return parent, Controller(
        "ReplicaSet", f"{name}-abc12", "vision", f"uid-of-{name}-rs", ORIGIN, parent=parent
    )


def pod(
    name: str,
    *,
    owner: Controller | None = None,
    created: int = 0,
    bound: int = FOREVER,
    started: int | None = None,
    finished: int = FOREVER,
    deleted: int | None = None,
    devices: Sequence[int] = (0,),
    activity: float = 0.5,
    power_watts: float = 300.0,
) -> Pod:
    """Return a pod on node `one`; times are seconds after the origin."""

    def at(seconds: int) -> int:
        return seconds if seconds >= FOREVER else ORIGIN + seconds

    if started is None:
        started = bound
    if deleted is None:
        deleted = finished if finished >= FOREVER else finished + LINGER_SECONDS
    return Pod(
        uid=f"uid-of-{name}",
        name=name,
        namespace="vision",
        owner=owner or job(),
        units=len(devices),
        created=at(created),
        bound=at(bound),
        started=at(started),
        finished=at(finished),
        deleted=at(deleted),
        node="one" if bound < FOREVER else "",
        devices=tuple(devices) if bound < FOREVER else (),
        activity=activity,
        memory_mib=20_000,
        power_watts=power_watts,
        pending_message="0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
    )


class Small(Scenario):
    """One node of four GPUs and the pods it is given."""

    name = "small"
    title = "one node"

    def __init__(
        self, pods: Sequence[Pod], controllers: Sequence[Controller] = (), *, quota: int = 4
    ) -> None:
        self.seed = "small"
        self.begins = ORIGIN
        self.nodes = [
            a100_node(seed="small", name="one", position=1, gpus=4, created=ORIGIN, labels={})
        ]
        self.namespaces = [Namespace("vision", "uid-of-vision", ORIGIN)]
        self.quotas = [Quota("vision", "gpus", "uid-of-quota", ORIGIN)]
        self.controllers = list(controllers) or [job()]
        self.teams = []
        self._epoch = Epoch(
            ORIGIN, FOREVER, pods=pods, hard={"vision": ActivitySteps((ORIGIN,), (quota,))}
        )

    def epochs(self, start: int, end: int) -> Iterator[Epoch]:
        if end >= ORIGIN:
            yield self._epoch
