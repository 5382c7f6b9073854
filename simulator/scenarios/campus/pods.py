"""Makes the pods of `campus` from what its teams get of a pool."""

from collections.abc import Callable

from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters.domain.devices.mig import mig_part
from simulator import identity
from simulator.fleet import FOREVER, Admission, Claim, Node, Pod
from simulator.scenarios.campus.pools import Pool
from simulator.scenarios.campus.room import Verdicts
from simulator.scenarios.distributions import Signal
from simulator.scenarios.packing import Draft
from simulator.scenarios.workloads import Workloads, bound_pod

SignalOf = Callable[[str, Node, float], Signal]
"""What the pod of a uid adds to a GPU of a node of which it has a part (0..1)."""


class User(Struct, frozen=True):
    """A team in a pool: where its pods are and what controls them."""

    number: int
    namespace: str
    workloads: Workloads


class PodMaker:
    """Makes the pods of one team in one pool."""

    def __init__(
        self, signal: SignalOf, pool: Pool, user: User, seed: str, verdicts: Verdicts
    ) -> None:
        self._signal = signal
        self._pool = pool
        self._user = user
        self._seed = f"{seed}/{user.namespace}"
        self._verdicts = verdicts

    def pod(self, draft: Draft, admission: Admission) -> Pod:
        pool = self._pool
        pod = self._user.workloads.pod(
            draft,
            self._seed,
            node_selector=pool.tier.node_selector,
            admission=admission,
            attempts=self._attempts(draft, admission),
            resource=pool.resource,
            tolerates_gpu=True,
            cpu_cores=4 * draft.units if pool.largest > 1 else 2,
            memory_gib=32 * draft.units if pool.largest > 1 else 8,
        )
        if draft.bound < FOREVER:
            pod = self._bound(pod, draft)
        return replace(pod, claim=self._claim(pod)) if pool.device_class else pod

    def _attempts(self, draft: Draft, admission: Admission) -> tuple[tuple[int, str], ...]:
        """Return when the scheduler looks at a pod in vain, and what it says."""
        left = min(draft.bound, draft.ended)
        if admission.at >= left:
            return ()
        selector = {**self._pool.tier.node_selector, **admission.adds}
        return tuple(self._verdicts.attempts(self._pool, selector, admission.at, left))

    def _bound(self, pod: Pod, draft: Draft) -> Pod:
        node = self._pool.nodes[draft.node]
        places = [self._pool.places[draft.node][slot] for slot in draft.devices]
        instances = tuple(instance for _, instance in places)
        signal = self._signal(pod.uid, node, part_of(self._pool, node))
        return bound_pod(
            *(pod, draft, node, signal),
            devices=tuple(index for index, _ in places),
            instances=instances if self._pool.profile else (),
            sm_active=signal.sm_active,
        )

    def _claim(self, pod: Pod) -> Claim:
        """Return the claim that was made for a pod from a template; it goes with the pod."""
        uid = identity.uid(pod.uid, "claim")
        return Claim(
            name=f"{pod.name}-gpu-{identity.suffix(5, uid)}",
            namespace=pod.namespace,
            uid=uid,
            device_class=self._pool.device_class,
            created=pod.created,
            template=f"{pod.owner.name}-gpu",
            allocated=pod.bound,
            released=pod.released,
            deleted=pod.released,
            node=pod.node,
            devices=pod.devices,
            instances=pod.instances,
            count=pod.units,
        )


def part_of(pool: Pool, node: Node) -> float:
    """Return the part of a GPU of a node that one unit of a pool is."""
    if pool.profile:
        return mig_part(pool.profile, node.model)
    return 1.0 / node.replicas
