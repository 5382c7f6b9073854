"""Fleets of every kind of node with tenants drawn by chance, the same for the same seed."""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from apps.accounts.domain.structs import replace
from simulator.fleet import FOREVER, GPU, GPU_SHARED, MIG_PREFIX, Claim, Exporter, Pod
from tests.simulator.sharing import Fleet, claim, every_kind, tenant
from tests.simulator.small import ORIGIN
from tests.usage.matrix import END

_SECONDS = END - ORIGIN
_TAKEN = 0.65
_SHARED_CLAIM = 0.4
_ACTIVITIES = (0.0, 0.05, 0.3, 0.6, 1.0)


class Place(NamedTuple):
    """Where one pod at a time may be: a GPU, a replica or an instance of one."""

    node: str
    device: int
    resource: str = GPU
    instance: int = -1

    @property
    def instances(self) -> tuple[int, ...]:
        return () if self.instance < 0 else (self.instance,)


def places() -> Iterator[Place]:
    """Yield every place of the nodes of `every_kind`."""
    for device in (0, 1):
        yield Place("whole", device)
        for _ in range(4):
            yield Place("shared", device, GPU_SHARED)
            yield Place("old", device)
            yield Place("mps", device)
        yield Place("mig", 0, f"{MIG_PREFIX}3g.40gb", device)
        yield Place("single", 0, GPU, device)
        yield Place("dra", 1, "mig", device)
    for number in range(7):
        yield Place("mig", 1, f"{MIG_PREFIX}1g.10gb", number)
    yield Place("mig", 2)
    yield Place("dra", 0, "gpu")


def drawn_fleet(seed: int, setup: Exporter) -> Fleet:
    """Return a fleet on which pods follow each other; all exporters are set up as `setup`.

    Nothing of what pods do depends on the exporter.
    """
    source = Random(seed)  # noqa: S311 - made data
    pods: list[Pod] = []
    claims: list[Claim] = []
    for place in places():
        if source.random() < _TAKEN:
            for begin, end in _lives(source):
                _settle(place, begin, end, source, pods, claims)
    return Fleet(every_kind(setup).nodes, pods, claims=claims)


def _lives(source: Random) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of pods that follow each other, at once or after a while."""
    at = source.randint(-1500, 3000)
    while at < _SECONDS:
        end = at + source.randint(30, 4000)
        if end > 0:
            yield max(0, at), end if end < _SECONDS else FOREVER
        at = end + source.choice((0, 0, 1, 15, 40, source.randint(0, 2000)))


def _settle(
    place: Place, begin: int, end: int, source: Random, pods: list[Pod], claims: list[Claim]
) -> None:
    given = None
    resource = place.resource
    if place.node == "dra":
        resource = f"{place.resource}.nvidia.com"
        given = replace(
            claim(
                f"c{len(claims)}",
                place.node,
                devices=(place.device,),
                instances=place.instances,
                cls=place.resource,
            ),
            created=ORIGIN + begin,
            allocated=ORIGIN + begin,
            released=end if end >= FOREVER else ORIGIN + end,
            deleted=end if end >= FOREVER else ORIGIN + end,
        )
        claims.append(given)
    count = 1
    if given is not None and place.instance < 0:
        count += source.random() < _SHARED_CLAIM
    for _ in range(count):
        pods.append(
            tenant(
                f"p{len(pods)}",
                place.node,
                devices=(place.device,),
                instances=place.instances,
                resource=resource,
                begin=begin,
                end=end,
                activity=source.choice(_ACTIVITIES),
                claim=given,
            )
        )
