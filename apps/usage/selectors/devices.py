"""Devices as they were last seen, with their pods, and activity that no pod explains."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

import msgspec
from django.db.models import Max, Q, QuerySet, Sum
from msgspec import Struct, field

from apps.accounts.domain.rows import row_from
from apps.accounts.permissions import Visibility
from apps.clusters.domain.devices.state import DeviceState, Health, of_models
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, Device, Namespace, NodeInterval, Pod
from apps.clusters.selectors import TeamSpan, team_spans
from apps.usage.domain.usage_query import Filters, GroupingRefused
from apps.usage.models import NodeHour
from apps.usage.selectors.data_quality import claims_before_the_watch
from apps.usage.selectors.fact_tables import models_named
from apps.usage.selectors.ledger import HOURLY_DAYS

_INSTANT = timedelta(seconds=1)
_COLUMNS = (
    *("pk", "cluster__name", "cluster_id", "node_name", "place", "uuid", "gpu_instance"),
    *("profile", "model", "first_seen", "last_seen", "looked_at", "state"),
    *("health", "health_since", "reasons"),
)
_ORDER = ("cluster__name", "node_name", "place", "pk")

_LONGEST = timedelta(days=HOURLY_DAYS, hours=1)


class DeviceFilters(Struct, frozen=True):
    """Narrow a list of devices; empty means all. `text` is a part of a UUID."""

    cluster: tuple[str, ...] = ()
    gpu_model: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    text: str = ""
    uuid: str = ""


class DeviceTenant(Struct, frozen=True):
    """A pod that a device's labels name; `uid` is None where the pod ledger has it not running."""

    namespace: str
    pod: str
    uid: str | None
    team: str


class DeviceRow(Struct, frozen=True):
    """A GPU or MIG instance. `tenants` are those that the reader may see, `hidden_tenants` counts
    the others; `state` is that of `last_seen`, and `looked_at` the newest reading of the cluster.
    """

    cluster: str
    node: str
    uuid: str
    gpu_instance: str
    profile: str
    model: str
    health: Health
    health_since: datetime
    reasons: tuple[str, ...]
    first_seen: datetime
    last_seen: datetime
    looked_at: datetime
    state: DeviceState
    tenants: tuple[DeviceTenant, ...] = ()
    hidden_tenants: int = 0

    @property
    def is_stray(self) -> bool:
        """Whether it works and no label names a pod."""
        return self.health is not Health.UNSEEN and self.state.is_active and not self.state.tenants


class NodeRow(Struct, frozen=True):
    """A node by its newest interval; all but the names is None where no interval is known.

    `devices` are what ResourceSlices offer on it, each with the fields of `OfferedDevice`.
    """

    cluster: str
    node: str
    since: datetime | None = None
    ready: bool | None = None
    schedulable: bool | None = None
    capacity: Mapping[str, float] = field(default_factory=dict)
    allocatable: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    devices: Sequence[Mapping[str, Any]] = ()


def device_rows(
    filters: DeviceFilters, *, visibility: Visibility, now: datetime
) -> list[DeviceRow]:
    """Return devices by cluster, node and their number in it. Seven queries at most.

    Who does not see everything gets the devices whose labels name a pod of a team of theirs, and
    of other teams' pods on these how many there are.
    """
    sight = _DeviceVisibility(visibility, now)
    ordered = _narrowed(filters, sight).order_by(*_ORDER).values_list(*_COLUMNS, named=True)
    # What a reader sees part of hangs on labels, which the database does not read.
    return _device_rows(list(ordered) if sight.everything else sight.filtered(ordered), sight)


def last_readings(*, visibility: Visibility, clusters: Collection[str] = ()) -> dict[str, Any]:
    """Return by active cluster when its devices were last looked at; None: never, or none seen.

    Everybody may see how old what they see is: `visibility` narrows nothing. One query.
    """
    del visibility
    rows = Cluster.objects.filter(active=True)
    if clusters:
        rows = rows.filter(name__in=clusters)
    looks = rows.annotate(looked=Max("device__looked_at")).order_by("name")
    return dict(looks.values_list("name", "looked"))


def node_rows(
    nodes: Iterable[tuple[str, str]], *, visibility: Visibility, now: datetime
) -> list[NodeRow]:
    """Return these nodes, (cluster, name), in their order, as they are now. One query.

    `visibility` narrows nothing: give only nodes of devices that the reader sees.
    """
    del visibility
    wanted = list(dict.fromkeys(nodes))
    intervals = (
        NodeInterval.objects.filter(
            node__cluster__name__in={cluster for cluster, _ in wanted},
            node__name__in={name for _, name in wanted},
            start__lte=now,
        )
        .exclude(end__lte=now)
        .order_by("start", "pk")
        .values_list(
            *("node__cluster__name", "node__name", "start", "ready", "schedulable"),
            *("capacity", "allocatable", "labels", "devices"),
        )
    )
    # In ascending order: a later interval takes the place of an earlier one.
    newest = {(row[0], row[1]): NodeRow(*row) for row in intervals}
    return [newest.get(key) or NodeRow(*key) for key in wanted]


def stray_devices(
    nodes: Iterable[tuple[str, str]], *, visibility: Visibility
) -> dict[tuple[str, str], list[DeviceRow]]:
    """Return by node, (cluster, name), the active devices without a holder. One query.

    Only for users who see everything: for others the holdings of other teams could be derived from
    it.
    """
    wanted = set(nodes)
    found: dict[tuple[str, str], list[DeviceRow]] = defaultdict(list)
    if not visibility.everything or not wanted:
        return found
    rows = Device.objects.filter(
        cluster__name__in={cluster for cluster, _ in wanted},
        node_name__in={name for _, name in wanted},
    ).exclude(health=Health.UNSEEN.value)
    for row in rows.order_by(*_ORDER).values_list(*_COLUMNS, named=True):
        device = _device_row(row, _state_of(row), (), 0)
        if device.is_stray and (device.cluster, device.node) in wanted:
            found[device.cluster, device.node].append(device)
    return found


# ---------------------------------------------------------------- who may see what


class _DeviceVisibility:
    """What a reader may see of devices now; the namespaces of their teams are read once."""

    def __init__(self, visibility: Visibility, now: datetime) -> None:
        self.visibility = visibility
        self.now = now
        self.everything = visibility.everything

    @cached_property
    def own(self) -> frozenset[str]:
        """The namespaces that belong to the reader's teams now."""
        if not self.visibility.team_ids:
            return frozenset()
        # Teams claim patterns of names, which the database cannot match: all names are tried.
        names = set(Namespace.objects.order_by().values_list("name", flat=True).distinct())
        spans = self.spans(names)
        return frozenset(name for name in names if self.visibility.sees(spans[name].team_id))

    def spans(self, namespaces: Iterable[str]) -> dict[str, TeamSpan]:
        """Return whose these namespaces are now."""
        at = Window(self.now, self.now + _INSTANT)
        return {name: spans[-1] for name, spans in team_spans(at, namespaces).items()}

    def filtered(self, rows: Iterable[Any]) -> list[Any]:
        """Return the rows whose labels name a pod of the reader's teams."""
        if not self.own:
            return []
        return [
            row
            for row in rows
            if any(tenant[0] in self.own for tenant in row.state.get("tenants", ()))
        ]

    def condition(self) -> Q:
        """Return what narrows devices before their labels are read."""
        if self.everything:
            return Q()
        running = Pod.objects.filter(
            ended_at__isnull=True, workload__namespace__name__in=self.own
        ).order_by()
        # A device whose node no label names could be anywhere, so also on one of these nodes.
        return Q(node_name="") | Q(node_name__in=running.values("node_name"))


def _narrowed(filters: DeviceFilters, sight: _DeviceVisibility) -> QuerySet[Device, Device]:
    rows = Device.objects.filter(sight.condition(), cluster__active=True)
    # What an unseen device showed last says nothing of who holds it now.
    if not sight.everything:
        rows = rows.exclude(health=Health.UNSEEN.value)
    for name, path in (("cluster", "cluster__name"), ("node", "node_name")):
        if wanted := getattr(filters, name):
            rows = rows.filter(**{f"{path}__in": wanted})
    if filters.gpu_model:
        models = Device.objects.order_by().values_list("model", flat=True).distinct()
        rows = rows.filter(model__in=of_models(models, filters.gpu_model))
    if filters.text:
        rows = rows.filter(uuid__icontains=filters.text)
    return rows.filter(uuid=filters.uuid) if filters.uuid else rows


# ---------------------------------------------------------------- rows


def _device_rows(rows: Sequence[Any], sight: _DeviceVisibility) -> list[DeviceRow]:
    if not rows:
        return []
    states = [_state_of(row) for row in rows]
    teams = sight.spans({tenant.namespace for state in states for tenant in state.tenants})
    uids = _running(rows) if teams else {}
    found = []
    for row, state in zip(rows, states, strict=True):
        named = dict.fromkeys((tenant.namespace, tenant.pod) for tenant in state.tenants)
        tenants = tuple(
            DeviceTenant(
                namespace,
                pod,
                uid=uids.get((row.cluster_id, namespace, pod)),
                team=teams[namespace].team,
            )
            for namespace, pod in named
            if sight.visibility.sees(teams[namespace].team_id)
        )
        found.append(_device_row(row, state, tenants, len(named) - len(tenants)))
    return found


def _state_of(row: Any) -> DeviceState:
    return msgspec.convert(row.state, DeviceState)


def _device_row(
    row: Any, state: DeviceState, tenants: tuple[DeviceTenant, ...], hidden: int
) -> DeviceRow:
    return row_from(
        DeviceRow,
        row,
        cluster=row.cluster__name,
        node=row.node_name,
        health=Health(row.health),
        reasons=tuple(row.reasons),
        state=state,
        tenants=tenants,
        hidden_tenants=hidden,
    )


def _running(rows: Sequence[Any]) -> dict[tuple[int, str, str], str]:
    """Return the UIDs of pods that hold GPUs now on the nodes of these rows; one query."""
    pods = Pod.objects.filter(
        cluster_id__in={row.cluster_id for row in rows},
        ended_at__isnull=True,
        bound_at__isnull=False,
    )
    # A device without a node may be held by a pod of any node.
    if all(row.node_name for row in rows):
        pods = pods.filter(node_name__in={row.node_name for row in rows})
    columns = ("cluster_id", "workload__namespace__name", "name", "uid")
    return {tuple(row[:3]): row[3] for row in pods.order_by("pk").values_list(*columns)}


class UnattributedRow(Struct, frozen=True):
    """What the devices of a node did in a window that no pod explains, in nano-GPU-hours.

    `within` is the part of it that lies within the node's `capacity` of the same hour. In hours of
    unknown capacity (of devices that only claims give out, before the watch) there is nothing to
    take a share of. Never more than `capacity`. `before_watch` is the part in such hours.
    """

    cluster: str
    node: str
    unattributed: int
    capacity: int
    within: int
    before_watch: int = 0


def unattributed_by_node(
    window: Window, *, filters: Filters, visibility: Visibility, limit: int
) -> list[UnattributedRow]:
    """Return the nodes with unattributed activity in the window, the largest first. At most five
    queries.

    Of `filters` cluster, tier, GPU model, capacity type and node count. For users who see
    everything; nothing for others: it belongs to no team. Raises GroupingRefused for a window that
    is longer than hourly rows are kept.
    """
    if not visibility.everything:
        return []
    if window.end - window.start > _LONGEST:
        raise GroupingRefused(
            f"nodes are kept by the hour and can be had for at most {HOURLY_DAYS} days at a time"
        )
    rows = NodeHour.objects.filter(
        cluster__active=True, hour__gte=window.start, hour__lt=window.end
    )
    for name, path in (
        ("cluster", "cluster__name"),
        ("tier", "tier__name"),
        ("capacity_type", "capacity_type"),
        ("node", "node__name"),
    ):
        if wanted := getattr(filters, name):
            rows = rows.filter(**{f"{path}__in": wanted})
    if filters.gpu_model:
        rows = rows.filter(Q(gpu_model_id__in=models_named(filters.gpu_model)))
    sums = (
        rows.order_by()
        .values("cluster__name", "node__name", "node_id")
        .annotate(lost=Sum("unattributed"))
        .filter(lost__gt=0)
        .order_by("-lost", "cluster__name", "node__name")
    )
    columns = ("cluster__name", "node__name", "node_id", "lost")
    found = list(sums.values_list(*columns)[:limit])
    if not found:
        return []
    own = rows.filter(node__in=[node for _, _, node, _ in found])
    # Only of the nodes that are shown, which the limit has made few.
    shares, untold = _shares(own), _before_the_watch(own, window)
    return [
        UnattributedRow(cluster, name, int(lost), *shares[node], untold.get(node, 0))
        for cluster, name, node, lost in found
    ]


def _before_the_watch(rows: QuerySet[NodeHour], window: Window) -> dict[int, int]:
    """Return of each node the part in hours in which only claims could tell. Three queries."""
    where = claims_before_the_watch(window)
    if where is None:
        return {}
    sums = rows.filter(where).order_by().values_list("node_id").annotate(Sum("unattributed"))
    return {node: int(lost) for node, lost in sums}


def _shares(rows: QuerySet[NodeHour]) -> dict[int, tuple[int, int]]:
    """Return of each node its capacity, and the unattributed part of it, hour by hour. One query.

    An hour of which a part of the capacity alone is told counts with that part.
    """
    by_hour = rows.order_by().values_list("node_id", "hour")
    found: dict[int, tuple[int, int]] = {}
    for node, _, lost, there in by_hour.annotate(Sum("unattributed"), Sum("capacity")):
        # By the hour, not of the sums: one hour's excess must not fill another hour's room.
        capacity, within = found.get(node, (0, 0))
        found[node] = (capacity + int(there), within + int(min(lost, there)))
    return found
