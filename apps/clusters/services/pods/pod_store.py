"""The pods of a cluster as `watch` learns them: in memory, and written to the pod ledger."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from django.db import transaction
from django.db.models import Q
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters.domain.devices.resource_claims import CLAIM_KIND
from apps.clusters.domain.observed.store import ObservedStore
from apps.clusters.domain.pods.history import closed_runs, updated
from apps.clusters.domain.pods.kube_objects import Run, tidy_runs
from apps.clusters.domain.pods.ledger import PodRecord, PodSource
from apps.clusters.domain.tiers import BUILTIN_TIERS, UNKNOWN_MODEL, model_key
from apps.clusters.domain.window import from_seconds
from apps.clusters.models import Cluster, FormerPerson, Pod, PodPerson, WatchCoverage
from apps.clusters.services.catalog import TierAssignment
from apps.clusters.services.pods.ledger_rows import (
    NameRegistry,
    chunks,
    pod_record_of,
    pod_values,
    upsert,
    workload_name,
)
from gpuportal.database_functions import OneOfTexts

LOST = "Lost"
_RESTORED_AFTER_SECONDS = 900.0
"""A list asked for so long after a deletion is newer than it, even where clocks differ."""

# Pods of one transaction: on SQLite no other process writes meanwhile.
PODS_AT_ONCE = 2000
# Pods of one query: all that it returns are in memory at once.
UIDS_AT_ONCE = 5000


class TrackedPod(Struct):
    """A pod's record, its weight and tier, and whether it went during a gap of the watch.

    `misread`: its requests differ from its stored weight, for its claims were not known.
    `restored`: it is there again after its deletion, which is to be written.
    """

    record: PodRecord
    assigned: TierAssignment | None = None
    lost: bool = False
    misread: bool = False
    restored: bool = False

    @property
    def settled(self) -> bool:
        """Say whether what it counts as is final: bound, in a tier of the catalog, model known."""
        return (
            not self.misread
            and self.record.bound is not None
            and self.assigned is not None
            and self.assigned.tier not in BUILTIN_TIERS
            and self.assigned.gpu_model not in {None, UNKNOWN_MODEL}
        )


class PodObservation(NamedTuple):
    """A pod as it was shown once; `vague` as in `updated`.

    `assumed` are runs to believe of a pod that was never seen before. `person` is who is behind
    it; empty where that is not kept, or not known.
    """

    record: PodRecord
    vague: bool = False
    assumed: tuple[Run, ...] = ()
    person: str = ""


class PodStore(ObservedStore[TrackedPod]):
    """Every pod that is there, by uid. One that has gone is dropped from memory once written."""

    def __init__(self, pods: Iterable[TrackedPod] = ()) -> None:
        super().__init__(lambda tracked: tracked.record.uid, pods)
        self.doubtful: set[str] = set()
        self.people: dict[str, str] = {}
        self._stored_people: dict[str, str] = {}
        self._adopted: set[str] = set()

    def unknown(self, uids: Iterable[str]) -> list[str]:
        """Return those uids whose rows must be looked up before they are applied."""
        return sorted(set(uids) - self.items.keys())

    def adopt(self, rows: Mapping[str, TrackedPod]) -> None:
        """Put rows of the database into memory."""
        for uid, tracked in rows.items():
            if uid not in self:
                self.put(tracked)
        # Remembered, so that rows of pods that are over leave memory after the next write.
        self._adopted.update(rows)

    def apply(self, seen: PodObservation, at: float, *, listed: bool = False) -> None:
        """Apply a pod as it was shown at time `at`; of a list that is when it was asked for."""
        record = seen.record
        if seen.person and self._stored_people.get(record.uid) != seen.person:
            self.people[record.uid] = seen.person
        known = self.get(record.uid)
        if known is None:
            self.keep(TrackedPod(_with_runs(record, seen.assumed)))
            return
        if _is_late(known, record):
            if not listed or not _is_restored(known, record, at):
                return
            known.lost = known.restored = True
            known.record = replace(known.record, finished=None)
        before = known.record
        # The API tells exact times: what was estimated from series is dropped.
        if before.source is PodSource.METRICS:
            known.lost, known.record = False, _with_runs(record, seen.assumed)
        elif known.lost and record.deleted is None:
            # Missing from a list, and there after all.
            alive = replace(before, deleted=None, end_reason="")
            known.lost, known.record = False, updated(alive, record, at=at, vague=seen.vague)
        else:
            known.record = updated(before, record, at=at, vague=seen.vague)
            known.lost = known.lost and known.record.finished is None
        known.misread = known.misread or known.record.requests != before.requests
        if known.record != before:
            self.mark(known)

    def relist(self, uids: Collection[str], at: float, last_seen: float | None) -> None:
        """Apply that only `uids` are there; others went since `last_seen`, unobserved."""
        for uid, tracked in self.items.items():
            record = tracked.record
            # Pods known from series alone were never listed: that they are missing says nothing
            # here.
            if uid in uids or record.deleted is not None or record.source is not PodSource.API:
                continue
            # It was there at each of these times, so it went after the last of them.
            latest = max(t for t in _times(record, last_seen) if t is not None)
            deleted = min(at, latest)
            tracked.lost = record.finished is None
            ended = record.finished if record.finished is not None else deleted
            tracked.record = replace(
                record,
                deleted=deleted,
                runs=closed_runs(record.runs, ended),
                end_reason=record.end_reason or LOST,
            )
            self.mark(tracked)

    def reassess(self, nodes: Collection[str] | None = None) -> None:
        """Have what pods count as worked out anew where it is not final.

        `nodes` are those whose labels came or changed; None: the catalog's rules did.
        """
        self.doubtful |= {
            uid
            for uid, tracked in self.items.items()
            if (nodes is None or tracked.record.node in nodes) and not tracked.settled
        }

    def doubt(self, uids: Collection[str]) -> None:
        """Have what these pods count as worked out anew: more is known of their devices."""
        for uid in uids:
            tracked = self.get(uid)
            if tracked is not None:
                tracked.misread = True
                self.doubtful.add(uid)

    def assign(self, work_out: Callable[[TrackedPod], TierAssignment | None]) -> None:
        """Set what changed and doubtful pods count as, unless that is final already."""
        for uid in sorted(self.changed.keys() | self.doubtful):
            tracked = self.items[uid]
            found = None if tracked.settled else work_out(tracked)
            if found is not None and found != tracked.assigned:
                tracked.assigned = found
                self.mark(tracked)
            tracked.misread = tracked.misread and found is None
        self.doubtful.clear()

    def written(self) -> None:
        """Note that all changes are in the database; forget pods that are over and gone."""
        self._stored_people |= self.people
        self.people.clear()
        for uid in self.changed.keys() | self._adopted:
            tracked = self.get(uid)
            if tracked is None:
                continue
            tracked.restored = False
            if tracked.record.deleted is not None:
                self.drop(uid)
                self._stored_people.pop(uid, None)
        super().written()
        self._adopted.clear()


def agreed(known: TrackedPod, ours: TrackedPod) -> TrackedPod:
    """Join what we are to write of a pod with the end that another process has written of it.

    Two processes may watch one cluster at once, as when a new version takes over, and one of them
    may be some seconds behind. An end that either saw stays, whichever writes last.
    """
    # The end of a lost pod is a guess: a process that saw the pod or its end knows better. So does
    # one that listed it anew long after its deletion.
    if ours.restored or (known.lost and not ours.lost):
        return ours
    assigned = ours.assigned if ours.settled or known.assigned is None else known.assigned
    both = [t for t in (known.record.deleted, ours.record.deleted) if t is not None]
    if ours.lost and not known.lost:
        deleted = both[0] if both else None
        return TrackedPod(replace(known.record, deleted=deleted), assigned)
    deleted = None if not both else max(both) if ours.lost else min(both)
    at = ours.record.ended if ours.record.ended is not None else 0.0
    record = updated(replace(known.record, deleted=deleted), ours.record, at=at)
    return TrackedPod(record, assigned, ours.lost)


def _is_late(known: TrackedPod, record: PodRecord) -> bool:
    """Say whether a look is older than the deletion that was seen: no uid comes back by itself.

    That a pod is missing in series is no deletion: who sees it afterwards knows better.
    """
    is_deleted = known.record.deleted is not None and not known.lost
    return is_deleted and known.record.source is PodSource.API and record.deleted is None


def _is_restored(known: TrackedPod, record: PodRecord, asked: float) -> bool:
    """Say whether a list shows a deleted pod because the server was set back to an earlier state.

    Its row goes on: the time in between counts as held where an hour of it is collected again.
    """
    deleted = known.record.deleted
    is_younger = deleted is not None and asked > deleted + _RESTORED_AFTER_SECONDS
    return is_younger and record.finished is None


def _times(record: PodRecord, last_seen: float | None) -> list[float | None]:
    starts = [start for start, _ in record.runs]
    return [last_seen, record.created, record.bound, record.finished, *starts]


def _with_runs(record: PodRecord, runs: tuple[Run, ...]) -> PodRecord:
    if not runs:
        return record
    joined = tidy_runs((*runs, *record.runs))
    return replace(record, runs=joined, started=joined[0][0])


def lock_cluster(cluster_id: int) -> None:
    """Have other writers of this cluster's rows wait until the transaction ends. One query."""
    # `no_key` lets others insert rows that refer to the cluster meanwhile.
    list(Cluster.objects.filter(pk=cluster_id).order_by("pk").select_for_update(no_key=True))


def present_pods(cluster_id: int) -> list[TrackedPod]:
    """Return the pods that the API last showed as being there, no claims. One query."""
    rows = Pod.objects.filter(
        cluster_id=cluster_id, deleted_at__isnull=True, source=PodSource.API.value
    ).exclude(workload__kind=CLAIM_KIND)
    related = rows.select_related("workload__namespace", "tier", "gpu_model")
    return [tracked(row) for row in related.order_by("pk").iterator()]


def known_pods(
    cluster_id: int, uids: Sequence[str], *, ended: bool = False
) -> dict[str, TrackedPod]:
    """Return the rows there are of these uids. One query for each 5,000.

    `ended` picks those that the API showed to have ended.
    """
    found = {}
    over = Q(finished_at__isnull=False) | Q(deleted_at__isnull=False)
    for part in chunks(uids, UIDS_AT_ONCE):
        rows = Pod.objects.filter(OneOfTexts("uid", part), cluster_id=cluster_id)
        if ended:
            rows = rows.filter(over, source=PodSource.API.value)
        related = rows.select_related("workload__namespace", "tier", "gpu_model")
        found.update({row.uid: tracked(row) for row in related.order_by("pk")})
    return found


def last_watched(cluster_id: int) -> float | None:
    """Return when this cluster was last watched; None if it never was. One query."""
    newest = WatchCoverage.objects.filter(cluster_id=cluster_id).order_by("-end", "-pk").first()
    return None if newest is None else newest.end.timestamp()


def write_pods(cluster_id: int, pods: Sequence[TrackedPod], names: NameRegistry) -> None:
    """Insert or update the rows of these pods, by (cluster, uid).

    An end that another process has written meanwhile stays, and is put to `pods`.
    """
    for start in range(0, len(pods), PODS_AT_ONCE):
        part = pods[start : start + PODS_AT_ONCE]
        with transaction.atomic():
            _agree(cluster_id, part)
            upsert_pods(cluster_id, part, names)


def _agree(cluster_id: int, pods: Sequence[TrackedPod]) -> None:
    """Join pods with the ends in the database. One writer of a cluster's pods at a time."""
    lock_cluster(cluster_id)
    ended = known_pods(cluster_id, [pod.record.uid for pod in pods], ended=True)
    for pod in pods:
        known = ended.get(pod.record.uid)
        if known is not None:
            joined = agreed(known, pod)
            pod.record, pod.assigned, pod.lost = joined.record, joined.assigned, joined.lost


def upsert_pods(
    cluster_id: int,
    pods: Sequence[TrackedPod],
    names: NameRegistry,
    *,
    revised_at: datetime | None = None,
    only_new: bool = False,
) -> None:
    """Insert the rows of pods, or update those there are by (cluster, uid), unless `only_new`.

    Makes the workloads, namespaces and models they need. `revised_at` is set where it is given.
    """
    workloads = names.workloads({workload_name(pod.record) for pod in pods})
    models = names.models(
        {p.assigned.gpu_model for p in pods if p.assigned and p.assigned.gpu_model}
    )
    tiers = names.tiers({pod.assigned.tier for pod in pods if pod.assigned})
    revised = {} if revised_at is None else {"revised_at": revised_at}
    rows: list[dict[str, object]] = [
        {
            "cluster_id": cluster_id,
            "uid": pod.record.uid,
            "workload_id": workloads[workload_name(pod.record)],
            "lost": pod.lost,
            **pod_values(pod.record),
            **_assigned_values(pod.assigned, tiers, models),
            **revised,
        }
        for pod in pods
    ]
    key = ("cluster_id", "uid")
    written = [column for column in (rows[0] if rows else ()) if column not in key]
    upsert(Pod, rows, unique=key, update=() if only_new else written)


def write_people(cluster_id: int, people: Mapping[str, str]) -> None:
    """Keep who is behind the pods of these uids that have rows.

    Pods from before their name was given to another person are left out. Three queries for each
    5,000.
    """
    for part in chunks(sorted(people), UIDS_AT_ONCE):
        former = former_people({people[uid] for uid in part})
        rows = Pod.objects.filter(OneOfTexts("uid", part), cluster_id=cluster_id).order_by("pk")
        upsert(
            PodPerson,
            [
                {"pod_id": pk, "person": people[uid]}
                for pk, uid, created in rows.values_list("pk", "uid", "created_at")
                if created >= former.get(people[uid], created)
            ],
            unique=("pod_id",),
            update=("person",),
        )


def former_people(people: Collection[str]) -> dict[str, datetime]:
    """Return the times before which these names were those of other persons. One query."""
    rows = FormerPerson.objects.filter(person__in=people)
    return dict(rows.values_list("person", "before"))


def write_spans(cluster_id: int, spans: Sequence[tuple[float, float]]) -> None:
    """Insert or extend the spans in which everything was watched, by (cluster, start)."""
    rows = [
        WatchCoverage(cluster_id=cluster_id, start=from_seconds(start), end=from_seconds(end))
        for start, end in dict(spans).items()
    ]
    if rows:
        WatchCoverage.objects.bulk_create(
            rows, update_conflicts=True, unique_fields=["cluster", "start"], update_fields=["end"]
        )


def _assigned_values(
    assigned: TierAssignment | None, tiers: Mapping[str, int], models: Mapping[str, int]
) -> dict[str, object]:
    if assigned is None:
        return {"tier_id": None, "gpu_model_id": None, "gpu_equivalents": 0.0}
    model = assigned.gpu_model
    return {
        "tier_id": tiers.get(assigned.tier),
        "gpu_model_id": None if model is None else models[model_key(model)],
        "gpu_equivalents": assigned.gpu_equivalents,
    }


def tracked(row: Pod) -> TrackedPod:
    """Return the pod of a row that was read with its relations."""
    assigned = None
    if row.tier is not None:
        model = None if row.gpu_model is None else row.gpu_model.name
        assigned = TierAssignment(row.tier.name, model, row.gpu_equivalents)
    return TrackedPod(record=pod_record_of(row), assigned=assigned, lost=row.lost)
