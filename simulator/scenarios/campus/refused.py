"""Deployments of `campus` that want more than the quota of their namespace allows, for hours."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from simulator import identity
from simulator.fleet import DAY, GPU, Controller, Pod, Refusal
from simulator.machines import A100
from simulator.scenarios.base import GPU_KEY

_HOUR = 3600


class _RefusedRequest(NamedTuple):
    """A Deployment that somebody tries each day from one hour to another."""

    namespace: str
    name: str
    first_hour: int
    last_hour: int
    replicas: int
    units: int


_REFUSED_REQUESTS: Sequence[_RefusedRequest] = (
    _RefusedRequest("medicine", "radiology-serve", 7, 13, 2, 8),
    _RefusedRequest("economics", "forecast-serve", 12, 20, 3, 4),
)


def refused(
    seed: str, pods: Iterable[Pod], limits: Mapping[str, Mapping[str, int]], start: int, end: int
) -> Iterator[Controller]:
    """Yield the Deployments and ReplicaSets of each whole day in start..end, with their refusals.

    A pod of theirs never fits under the limit of their namespace by itself.
    """
    spaces = {wish.namespace for wish in _REFUSED_REQUESTS}
    mine = [pod for pod in pods if pod.namespace in spaces and pod.resource == GPU]
    for wish in _REFUSED_REQUESTS:
        limit = limits[wish.namespace][GPU_KEY]
        for day in range(-(-start // DAY), end // DAY):
            at = day * DAY + wish.first_hour * _HOUR
            used = sum(
                pod.units
                for pod in mine
                if pod.namespace == wish.namespace and pod.created <= at < pod.released
            )
            yield from _tried(seed, wish, at, used=used, limit=limit)


def _tried(
    seed: str, wish: _RefusedRequest, at: int, *, used: int, limit: int
) -> Iterator[Controller]:
    def uid(kind: str) -> str:
        return identity.uid(seed, kind, wish.namespace, wish.name, at)

    until = at + (wish.last_hour - wish.first_hour) * _HOUR
    made = Controller("Deployment", wish.name, wish.namespace, uid("Deployment"), at, until)
    yield made
    name = f"{wish.name}-{identity.suffix(10, uid('ReplicaSet'))}"
    message = (
        f'pods "{name}-{identity.suffix(5, uid("Pod"))}" is forbidden: exceeded quota: gpus, '
        f"requested: {GPU_KEY}={wish.units}, used: {GPU_KEY}={used}, limited: {GPU_KEY}={limit}"
    )
    refusal = Refusal(
        wanted=wish.replicas,
        units=wish.units,
        resource=GPU,
        node_selector={"nvidia.com/gpu.product": A100.product},
        message=message,
    )
    yield Controller(
        "ReplicaSet", name, wish.namespace, uid("ReplicaSet"), at, until, made, refusal
    )
