"""Rows of the pod ledger: ids of names, pods and node intervals, written many at once."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import msgspec
from django.db import connection, models
from django.db.models import Q, TextField
from django.db.models.functions import Cast

from apps.accounts.domain.rows import row_from
from apps.clusters.domain.pods.kube_objects import NodeState
from apps.clusters.domain.pods.ledger import (
    ClaimAllocationRecord,
    ClaimedDevice,
    ContainerExit,
    LastSeen,
    NodeInterval,
    OfferedDevice,
    Owner,
    PodRecord,
    PodSource,
)
from apps.clusters.domain.resources import main_resource
from apps.clusters.domain.tiers import model_key
from apps.clusters.domain.window import TimeSpan, Window, clip, from_seconds, union
from apps.clusters.models import (
    ClaimInterval,
    Cluster,
    GpuModel,
    Namespace,
    Node,
    Pod,
    Tier,
    WatchCoverage,
    Workload,
)
from apps.clusters.models import NodeInterval as NodeIntervalRow
from gpuportal.database_functions import OneOfTexts, UnixSeconds, insert_many

_encode = msgspec.json.Encoder().encode


def upsert(
    model: type[models.Model],
    rows: Sequence[Mapping[str, Any]],
    *,
    unique: Sequence[str],
    update: Collection[str] = (),
) -> None:
    """Insert rows, or set the columns `update` of those that are there by the columns `unique`.

    Every row maps the same columns to values; times are aware datetimes, and what a JSON column
    holds is anything that JSON can say. Nothing of a row that is there changes without `update`.
    """
    if not rows:
        return
    quoted = connection.ops.quote_name
    table, columns = quoted(model._meta.db_table), list(rows[0])
    names = ", ".join(map(quoted, columns))
    sets = ", ".join(f"{quoted(column)} = EXCLUDED.{quoted(column)}" for column in update)
    conflict = f"ON CONFLICT ({', '.join(map(quoted, unique))}) DO " + (
        f"UPDATE SET {sets}" if sets else "NOTHING"
    )
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            same = _same_of_all(rows, columns)
            others = [column for column in columns if column not in same]
            read = ", ".join(
                f"{'c' if column in same else 'r'}.{quoted(column)}" for column in columns
            )
            # One parameter for all rows: to adapt half a million values takes Django seconds.
            cursor.execute(
                f"INSERT INTO {table} ({names}) SELECT {read} "  # noqa: S608 (names of ours)
                f"FROM json_populate_recordset(NULL::{table}, %s) AS r "
                f"CROSS JOIN json_populate_record(NULL::{table}, %s) AS c {conflict}",
                [
                    _encode([{name: row[name] for name in others} for row in rows]).decode(),
                    _encode(same).decode(),
                ],
            )
            return
        insert_many(
            cursor,
            f"INSERT INTO {table} ({names})",
            list(zip(*(_plain_column(rows, column) for column in columns), strict=True)),
            conflict,
        )


def _same_of_all(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> dict[str, Any]:
    """Return the columns whose value all rows share; what JSON could write differently is none.

    Half of a pod's columns are alike in a list of pods, and PostgreSQL takes as long to read them
    of each as to write the rows.
    """
    found = {}
    for column in columns:
        value = rows[0][column]
        # Most columns that differ do so in the last row.
        if rows[-1][column] != value or not (type(value) in _ALIKE or value in ([], {})):
            continue
        values = list(map(itemgetter(column), rows))
        # To Python 1 is True and 1.0, to JSON it is not.
        if values.count(value) == len(rows) and len(set(map(type, values))) == 1:
            found[column] = value
    return found


_ALIKE = frozenset({str, int, bool, datetime, type(None)})
_AS_IT_IS = frozenset({str, int, float, bool, type(None)})
_JSON = frozenset({dict, list})


def _plain_column(rows: Sequence[Mapping[str, Any]], column: str) -> Sequence[Any]:
    """Return a column as SQLite stores it."""
    values = list(map(itemgetter(column), rows))
    kinds = set(map(type, values))
    # Most are stored as they are: half a million calls would tell so value by value.
    if kinds <= _AS_IT_IS:
        return values
    if kinds <= _JSON:
        # Of most pods some are empty: of equal others 1 may be 1.0 or True.
        if not values[0] and values.count(values[0]) == len(values):
            return [_encode(values[0]).decode()] * len(values)
        return list(map(bytes.decode, map(_encode, values)))
    return [value if type(value) in _AS_IT_IS else _plain(value) for value in values]


def _plain(value: Any) -> Any:
    """Return a value as SQLite stores it."""
    if isinstance(value, datetime):
        if value.tzinfo is UTC:
            # What Django comes to by way of the connection, whose times are UTC too: no "+00:00".
            return str(value)[:-6]
        return connection.ops.adapt_datetimefield_value(value)
    return _encode(value).decode() if isinstance(value, dict | list) else value


Item = TypeVar("Item")
NamedTable = TypeVar("NamedTable", Namespace, Node)

CHUNK = 500
# Names remembered at most: short jobs bring new workloads for as long as a watch runs.
_MOST = 200_000

# (namespace, kind, name of the top controller)
WorkloadName = tuple[str, str, str]

INTERVAL_FIELDS = ["end", "ready", "schedulable", "capacity", "allocatable", "labels", "devices"]
_INTERVAL_TEXTS = {f"{name}_text": Cast(name, TextField()) for name in INTERVAL_FIELDS[3:]}
# Texts, for most pods of a controller say the same, and what is known already is not decoded.
_TEXTS = {
    f"{name}_text": Cast(name, TextField())
    for name in ("requests", "node_selector", "runs", "claims")
}
_TIMES = {
    f"{name}_seconds": UnixSeconds(f"{name}_at")
    for name in ("created", "bound", "started", "finished", "deleted")
} | {"observed_seconds": UnixSeconds("observed_until")}
_COLUMNS = (
    *("pk", "workload_id", "workload__namespace_id", "tier__name", "gpu_model__name"),
    *("gpu_equivalents", "units", "lost", "uid", "workload__namespace__name", "name"),
    *("workload__kind", "workload__name", "node_name", "end_reason", "priority_class", "source"),
    *("queue", "gang", "priority", "gpus"),
    *_TIMES,
    *_TEXTS,
)
_NONE = "[]"
_names = msgspec.json.Decoder(tuple[str, ...]).decode
_runs = msgspec.json.Decoder(tuple[tuple[float, float | None], ...]).decode


def chunks(items: Sequence[Item], size: int = CHUNK) -> Iterator[Sequence[Item]]:
    """Yield parts of at most `size`, which every database takes as parameters of one query."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def workload_name(record: PodRecord) -> WorkloadName:
    return (record.namespace, record.owner.kind, record.owner.name)


class NameRegistry:
    """Ids by name for one cluster, remembered; rows that are not there yet are made.

    Several processes may do so at once: a row made by another is found, not an error.
    """

    def __init__(self, cluster_id: int) -> None:
        self._cluster = cluster_id
        self._namespaces: dict[str, int] = {}
        self._nodes: dict[str, int] = {}
        self._models: dict[str, int] = {}
        self._workloads: dict[WorkloadName, int] = {}
        self._tiers: dict[str, int] = {}

    def namespaces(self, names: Collection[str]) -> dict[str, int]:
        """Return name → id of namespaces. Three queries when some are new, else none."""
        return self._of_cluster(Namespace, self._namespaces, names)

    def nodes(self, names: Collection[str]) -> dict[str, int]:
        """Return name → id of nodes; queries as `namespaces`."""
        return self._of_cluster(Node, self._nodes, names)

    def _of_cluster(
        self, table: type[NamedTable], known: dict[str, int], names: Collection[str]
    ) -> dict[str, int]:
        if len(known) > _MOST:
            known.clear()
        for part in chunks(sorted(set(names) - known.keys())):
            rows = [{"cluster_id": self._cluster, "name": name} for name in part]
            upsert(table, rows, unique=("cluster_id", "name"))
            found = table._default_manager.filter(cluster_id=self._cluster, name__in=part)
            known.update(found.order_by("pk").values_list("name", "pk"))
        return known

    def models(self, names: Collection[str]) -> dict[str, int]:
        """Return model key → id of GPU models."""
        new = {model_key(n): n for n in sorted(names) if model_key(n) not in self._models}
        if new:
            rows = [GpuModel(key=key, name=name) for key, name in new.items()]
            GpuModel.objects.bulk_create(rows, ignore_conflicts=True)
            found = GpuModel.objects.filter(key__in=list(new))
            self._models.update(found.order_by("pk").values_list("key", "pk"))
        return self._models

    def tiers(self, names: Collection[str]) -> dict[str, int]:
        """Return name → id of tiers; one that the catalog has not is left out."""
        if set(names) - self._tiers.keys():
            self._tiers = dict(Tier.objects.order_by("pk").values_list("name", "pk"))
        return self._tiers

    def workloads(self, names: Collection[WorkloadName]) -> dict[WorkloadName, int]:
        """Return (namespace, kind, name) → id of workloads."""
        if len(self._workloads) > _MOST:
            self._workloads.clear()
        new = sorted(set(names) - self._workloads.keys())
        namespaces = self.namespaces({name[0] for name in new})
        for start in range(0, len(new), CHUNK):
            part = new[start : start + CHUNK]
            rows = [
                {"namespace_id": namespaces[namespace], "kind": kind, "name": name}
                for namespace, kind, name in part
            ]
            upsert(Workload, rows, unique=("namespace_id", "kind", "name"))
            # May find more than was asked for, as the parts of a name are matched apart.
            found = Workload.objects.filter(
                OneOfTexts("name", {n[2] for n in part}),
                namespace__in={namespaces[n[0]] for n in part},
            )
            for row in found.order_by("pk").values_list("namespace__name", "kind", "name", "pk"):
                self._workloads[row[0], row[1], row[2]] = row[3]
        return self._workloads


def pod_values(record: PodRecord) -> dict[str, Any]:
    """Return the columns of a pod's row that its record tells."""
    resource, units = main_resource(record.requests)
    return {
        "name": record.name,
        "node_name": record.node,
        "resource": resource,
        "units": units,
        "requests": dict(record.requests),
        "node_selector": dict(record.node_selector),
        "priority_class": record.priority_class,
        # PostgreSQL takes no NUL in text.
        "queue": record.queue.replace("\0", "")[:253],
        "gang": record.gang.replace("\0", "")[:253],
        "priority": record.priority,
        "created_at": from_seconds(record.created),
        "bound_at": _time(record.bound),
        "started_at": _time(record.started),
        "finished_at": _time(record.finished),
        "deleted_at": _time(record.deleted),
        "ended_at": _time(record.ended),
        "observed_until": None if record.last_seen is None else from_seconds(record.last_seen.at),
        "runs": list(map(list, record.runs)),
        "claims": list(record.claims),
        # PostgreSQL takes no NUL in JSON either.
        "exits": [[at, reason.replace("\0", "")[:120]] for at, reason in record.exits],
        "checkpoints": list(record.checkpoints),
        # PostgreSQL takes no NUL in text, and a kubelet's word may be anything.
        "end_reason": record.end_reason.replace("\0", "")[:120],
        "source": record.source.value,
        "estimated": ",".join(sorted(record.estimated)),
        "unschedulable": record.unschedulable,
        "kept_for_latency": record.kept_for_latency,
        # PostgreSQL takes no NUL in text, and who may write an annotation may write one.
        "gpus": " ".join(record.gpus).replace("\0", ""),
    }


def pod_record_of(row: Pod) -> PodRecord:
    """Return the record of a row read with its workload and that one's namespace."""
    workload = row.workload
    return PodRecord(
        uid=row.uid,
        namespace=workload.namespace.name,
        name=row.name,
        owner=Owner(workload.kind, workload.name),
        requests=row.requests,
        created=row.created_at.timestamp(),
        node=row.node_name,
        bound=_seconds(row.bound_at),
        started=_seconds(row.started_at),
        finished=_seconds(row.finished_at),
        deleted=_seconds(row.deleted_at),
        runs=tuple((start, end) for start, end in row.runs),
        end_reason=row.end_reason,
        priority_class=row.priority_class,
        node_selector=row.node_selector,
        source=PodSource(row.source),
        queue=row.queue,
        gang=row.gang,
        priority=row.priority,
        claims=tuple(row.claims),
        exits=tuple(ContainerExit(*one) for one in row.exits or ()),
        checkpoints=tuple(row.checkpoints or ()),
        last_seen=_last_seen(row),
        estimated=frozenset(row.estimated.split(",") if row.estimated else ()),
        unschedulable=row.unschedulable,
        kept_for_latency=row.kept_for_latency,
        gpus=tuple(row.gpus.split()),
    )


def _last_seen(row: Pod) -> LastSeen | None:
    if row.observed_until is None:
        return None
    gone = row.deleted_at is not None and not row.lost
    return LastSeen(row.observed_until.timestamp(), gone)


def interval_values(state: NodeState, end: float | None) -> dict[str, Any]:
    """Return the columns of an interval's row beside its node and start."""
    return {
        "end": _time(end),
        "ready": state.ready,
        "schedulable": state.schedulable,
        "capacity": dict(state.capacity),
        "allocatable": dict(state.allocatable),
        "labels": dict(state.labels),
        "devices": [device._asdict() for device in state.devices],
    }


def node_state_of(row: NodeIntervalRow) -> NodeState:
    """Return the state that an interval's row (read with its node) describes."""
    return row_from(
        NodeState,
        row,
        name=row.node.name,
        devices=_offered(row.devices),
    )


def claim_values(record: ClaimAllocationRecord) -> dict[str, Any]:
    """Return the columns of a claim's interval beside its cluster."""
    return {
        "uid": record.uid,
        "namespace": record.namespace,
        "name": record.name,
        "node_name": record.node,
        "allocated_at": from_seconds(record.allocated),
        "released_at": _time(record.released),
        "devices": [device._asdict() for device in record.devices],
    }


def claim_of(row: ClaimInterval) -> ClaimAllocationRecord:
    """Return the record of a claim's interval."""
    return ClaimAllocationRecord(
        uid=row.uid,
        namespace=row.namespace,
        name=row.name,
        node=row.node_name,
        allocated=row.allocated_at.timestamp(),
        released=_seconds(row.released_at),
        devices=tuple(ClaimedDevice(**device) for device in row.devices),
    )


def _offered(devices: list[dict[str, Any]]) -> tuple[OfferedDevice, ...]:
    return tuple(OfferedDevice(**{**d, "classes": tuple(d["classes"])}) for d in devices)


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else from_seconds(seconds)


def _seconds(time: datetime | None) -> float | None:
    return None if time is None else time.timestamp()


class RecordedPod(NamedTuple):
    """A pod's row: its record, the ids of what it belongs to, and what it counts as.

    An allocated ResourceClaim has one too, its owner of the kind CLAIM_KIND (resource_claims). Its
    devices are held by the pods that name it, and by the claim itself while there are none. `tier`
    and `gpu_model` are None while they are not known; `gpu_equivalents` is of all its `units`
    together. `lost`: it went during a gap of the watch, its end is when it was last seen.
    """

    id: int
    workload_id: int
    namespace_id: int
    record: PodRecord
    tier: str | None
    gpu_model: str | None
    gpu_equivalents: float
    units: float
    lost: bool


def recorded_pod_rows(
    cluster: Cluster, window: Window, *, source: PodSource | None = PodSource.API
) -> list[RecordedPod]:
    """Return the rows of the pods that lived in the window, by uid. One query.

    `source` picks where they were learnt; None takes both. A pod learnt from series ends, at the
    latest, when they showed it last: only the API's rows say that a pod is still there.
    """
    rows = Pod.objects.filter(cluster=cluster, created_at__lt=window.end).filter(
        Q(ended_at__isnull=True) | Q(ended_at__gt=window.start)
    )
    if source is not None:
        rows = rows.filter(source=source.value)
    found = rows.order_by("uid", "pk").annotate(**_TEXTS, **_TIMES).values_list(*_COLUMNS)
    return [_recorded(values) for values in found.iterator()]


def lost_pods(cluster: Cluster, window: Window) -> frozenset[str]:
    """Return the uids of the pods that went unseen in the window. One query."""
    rows = Pod.objects.filter(
        cluster=cluster, lost=True, ended_at__gte=window.start, ended_at__lt=window.end
    )
    return frozenset(rows.filter(source=PodSource.API.value).values_list("uid", flat=True))


def recorded_intervals(cluster: Cluster, window: Window) -> list[NodeInterval]:
    """Return the API's node intervals, cut to the window, by node and start. One query.

    An interval that lasts is taken to last to the end of the window: `watched_spans` says how much
    of it anybody can vouch for.
    """
    rows = NodeIntervalRow.objects.filter(node__cluster=cluster, start__lt=window.end).filter(
        Q(end__isnull=True) | Q(end__gt=window.start)
    )
    found = rows.order_by("node__name", "start", "pk").annotate(**_INTERVAL_TEXTS)
    return [
        NodeInterval(
            node=node,
            start=max(window.start_seconds, start.timestamp()),
            end=window.end_seconds if end is None else min(window.end_seconds, end.timestamp()),
            capacity=_mapping(capacity),
            allocatable=_mapping(allocatable),
            labels=_mapping(labels),
            ready=ready,
            schedulable=schedulable,
            devices=() if devices == _NONE else _offered(msgspec.json.decode(devices)),
        )
        for node, start, end, ready, schedulable, capacity, allocatable, labels, devices in (
            found.values_list(
                "node__name", "start", *INTERVAL_FIELDS[:3], *_INTERVAL_TEXTS
            ).iterator()
        )
    ]


def recorded_claims(cluster: Cluster, window: Window) -> list[ClaimAllocationRecord]:
    """Return the allocations of GPUs to ResourceClaims that lasted in the window. One query.

    By uid and time, whole: `released` may be after the window, None where it lasts.
    """
    rows = ClaimInterval.objects.filter(cluster=cluster, allocated_at__lt=window.end).filter(
        Q(released_at__isnull=True) | Q(released_at__gt=window.start)
    )
    return [claim_of(row) for row in rows.order_by("uid", "allocated_at", "pk")]


def watched_spans(cluster: Cluster, window: Window) -> tuple[TimeSpan, ...]:
    """Return the disjoint spans of the window in which every change was seen. One query."""
    rows = WatchCoverage.objects.filter(
        cluster=cluster, start__lt=window.end, end__gt=window.start
    ).order_by("start", "pk")
    spans = ((row.start.timestamp(), row.end.timestamp()) for row in rows)
    return clip(union(spans), window.start_seconds, window.end_seconds)


@lru_cache(maxsize=1024)
def _mapping(text: str) -> Mapping[str, Any]:
    # Read-only, because all pods with the same text share it.
    return MappingProxyType(msgspec.json.decode(text, type=dict[str, Any]))


def _recorded(values: Sequence[Any]) -> RecordedPod:
    """Return what the values of _COLUMNS tell; a third of the work of rows with relations."""
    pk, workload, namespace_id, tier, model, equivalents, units, lost, *rest = values
    uid, namespace, name, kind, owner, node, reason, priority_class, source, *rest = rest
    queue, gang, priority, gpus, *rest = rest
    created, bound, started, finished, deleted, observed, requests, selector, runs, claims = rest
    record = PodRecord(
        uid=uid,
        namespace=namespace,
        name=name,
        owner=Owner(kind, owner),
        requests=_mapping(requests),
        created=created,
        node=node,
        bound=bound,
        started=started,
        finished=finished,
        # Of a pod of series without an end all that is known is when they showed it last.
        deleted=observed if deleted is None and finished is None else deleted,
        runs=_runs(runs),
        end_reason=reason,
        priority_class=priority_class,
        node_selector=_mapping(selector),
        source=PodSource(source),
        queue=queue,
        gang=gang,
        priority=priority,
        claims=() if claims == _NONE else _names(claims),
        gpus=tuple(gpus.split()) if gpus else (),
    )
    return RecordedPod(pk, workload, namespace_id, record, tier, model, equivalents, units, lost)
