"""Writing when the work of pods saved its state, as series of an hour tell it."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice

from apps.clusters.domain.pods.history import last_of_runs
from apps.clusters.domain.pods.ledger import PodRecord
from apps.clusters.domain.window import Window
from apps.clusters.ports import PodCheckpoints
from apps.usage.models import SavedStates
from apps.usage.services.facts import Dimensions
from gpuportal.database_functions import Numbers

_PODS_AT_A_TIME = 5000


def write_checkpoints(
    hour: Window,
    checkpoints: Sequence[PodCheckpoints],
    pods: Iterable[PodRecord],
    dimensions: Dimensions,
) -> None:
    """Keep the last checkpoint of each run, beside those that are known of other hours.

    Two queries for 5,000 pods with new ones, none without any.
    """
    if not checkpoints:
        return
    told = {(one.namespace, one.pod): one.times for one in checkpoints}
    found: dict[int, tuple[PodRecord, list[float]]] = {}
    for pod in pods:
        ids, held = dimensions.pods.get(pod.uid), pod.held(hour.end_seconds)
        if ids is None or held is None:
            continue
        # Pods of a StatefulSet follow one another under one name, and a gauge may go on telling
        # what was loaded when a pod began: what was saved before is no work of its own.
        own = [at for at in told.get((pod.namespace, pod.name), ()) if held[0] < at <= held[1]]
        if own:
            found[ids.pod] = pod, own
    numbers = iter(sorted(found))
    # In one order, so that two workers wait for each other and never cross.
    while some := list(islice(numbers, _PODS_AT_A_TIME)):
        # Without the order of the table, which is that of another one.
        kept = SavedStates.objects.filter(pod__in=Numbers(some)).order_by()
        known: defaultdict[int, list[float]] = defaultdict(list)
        known.update(kept.values_list("pod_id", "times"))
        rows = []
        for number in some:
            pod, own = found[number]
            times = last_of_runs({*known[number], *own}, pod.runs, pod.exits)
            if list(times) != known[number]:
                rows.append(SavedStates(pod_id=number, times=list(times)))
        SavedStates.objects.bulk_create(
            rows,
            update_conflicts=True,
            unique_fields=["pod"],
            update_fields=["times"],
            batch_size=1000,
        )
