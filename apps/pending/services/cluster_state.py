"""What is known of a cluster at one moment, read from the observed objects and the pod ledger."""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from datetime import datetime

from apps.clusters.domain.devices.dra import is_gpu_class
from apps.clusters.domain.observed.objects import (
    CONTROLLERS,
    POD_GROUPS,
    ObservedKind,
    ObservedObject,
    PodSnapshot,
)
from apps.clusters.domain.resources import is_gpu
from apps.clusters.services import TierHistory, observed_objects
from apps.pending.domain.state import ClusterState
from apps.pending.services.ledger import LedgerPod, holders

_WAITING_KINDS = frozenset(
    {
        ObservedKind.POD,
        *CONTROLLERS,
        *POD_GROUPS,
        ObservedKind.KUEUE_WORKLOAD,
        ObservedKind.RESOURCE_CLAIM,
    }
)


def read_state(
    cluster_id: int,
    pods: Sequence[LedgerPod],
    *,
    now: datetime,
    gone_since: datetime,
    catalog: TierHistory,
) -> ClusterState:
    """Return the state at `now`; `pods` are the ledger's rows of those there. One query."""
    there: dict[ObservedKind, list[ObservedObject]] = defaultdict(list)
    gone = []
    for one in observed_objects(cluster_id, list(ObservedKind), gone_since=gone_since):
        if one.gone is None:
            there[one.kind].append(one)
        elif one.kind in _WAITING_KINDS:
            gone.append(one)
    return ClusterState(
        at=now.timestamp(),
        objects=there,
        holders=holders(pods),
        gone=gone,
        is_gpu=_gpu_finder(catalog),
    )


def came_and_went(state: ClusterState, known: Collection[str]) -> list[ObservedObject]:
    """Return pods that went, last seen unbound, which are not among the `known` uids."""
    return [
        one
        for one in state.gone
        if isinstance(one.body, PodSnapshot) and one.body.bound is None and one.uid not in known
    ]


def _gpu_finder(catalog: TierHistory) -> Callable[[str], bool]:
    resources, classes = catalog.resources, catalog.device_classes
    known: dict[str, bool] = {}

    def is_one_of_gpus(name: str) -> bool:
        found = known.get(name)
        if found is None:
            found = is_gpu(name, resources) or name in classes or is_gpu_class(name, None)
            known[name] = found
        return found

    return is_one_of_gpus
