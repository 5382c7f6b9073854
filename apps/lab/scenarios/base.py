"""What every scenario gives: its fixed parts, and laps of pods over time."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

from apps.lab.fleet import Controller, Node
from apps.lab.laps import Lap


@dataclass(frozen=True, slots=True)
class Team:
    """A team of the catalog that fits the scenario; `entitlement` in GPUs."""

    name: str
    namespaces: tuple[str, ...]
    entitlement: int
    cost_center: str
    leads: tuple[str, ...] = ()
    monthly_gpu_hours: int = 0


@dataclass(frozen=True, slots=True)
class Quota:
    """A ResourceQuota on `requests.nvidia.com/gpu`; its limit over time is in the laps."""

    namespace: str
    name: str
    uid: str
    created: int


@dataclass(frozen=True, slots=True)
class Namespace:
    name: str
    uid: str
    created: int
    labels: Mapping[str, str] = field(default_factory=dict)


class Scenario(ABC):
    """A cluster over time; the same arguments always give the same cluster.

    `begins` is when its nodes, namespaces and lasting controllers were made, `seed` what every
    name and chance is derived from.
    """

    name: str
    title: str
    seed: str
    begins: int
    nodes: Sequence[Node]
    namespaces: Sequence[Namespace]
    quotas: Sequence[Quota]
    controllers: Sequence[Controller]
    teams: Sequence[Team]

    @abstractmethod
    def laps(self, start: int, end: int) -> Iterator[Lap]:
        """Yield the laps that touch start..end, oldest first."""

    def lap_at(self, at: int) -> Lap | None:
        """Return the lap of an instant; None before the first."""
        return next((lap for lap in self.laps(at, at) if lap.start <= at < lap.end), None)

    def controllers_between(self, start: int, end: int) -> Iterator[Controller]:
        """Yield the controllers that exist at some time in start..end (both included)."""
        passing = (controller for lap in self.laps(start, end) for controller in lap.controllers)
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
