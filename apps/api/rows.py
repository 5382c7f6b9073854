"""What an answer holds: one serializer for each endpoint's rows.

The fields are what the OpenAPI document says. Rows of usage and pods are built by plain functions
instead of field by field: a page of 500 rows has 10,000 values.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from rest_framework import serializers

from apps.clusters.domain.tiers import CapacityType, GpuSharing
from apps.clusters.domain.window import Window
from apps.clusters.selectors import ClusterRow, TeamRow, TierRow
from apps.usage.domain.collection import CollectionState
from apps.usage.domain.columns import (
    HELD_COLUMNS,
    Record,
    collected_amounts,
    flat,
    held_record,
    ledger_record,
    utc_text,
)
from apps.usage.domain.rows import CollectionRow, PodRow, UsageRow

POD_COLUMNS = (
    *("cluster", "namespace", "pod", "uid", "owner_kind", "owner", "team", "tier", "gpu_model"),
    *("node", "resource", "units", "gpu_equivalents", "created_at", "bound_at", "started_at"),
    *("finished_at", "end_reason"),
)
POD_CELLS = (*POD_COLUMNS, *flat(held_record(None)))

_HOURS = "GPU-equivalents × hours."


def _hours(text: str = "", *, null: bool = False) -> serializers.FloatField:
    return serializers.FloatField(allow_null=null, help_text=f"{_HOURS} {text}".strip())


def _ratio(text: str) -> serializers.FloatField:
    return serializers.FloatField(
        allow_null=True, help_text=f"0..1: {text}. Null where the divisor is zero."
    )


def _level(of: str) -> serializers.FloatField:
    return serializers.FloatField(
        allow_null=True,
        help_text=f"0..1: active share of the {of}, over measured time. Null where not exported.",
    )


def _text(help_text: str = "", *, null: bool = False) -> serializers.CharField:
    return serializers.CharField(allow_null=null, help_text=help_text)


def _time(help_text: str = "", *, null: bool = False) -> serializers.DateTimeField:
    return serializers.DateTimeField(allow_null=null, help_text=help_text)


_NO_CAPACITY = (
    "Null where team, namespace or workload is grouped or filtered by, and by node for who sees "
    "only some teams."
)
_UTILIZATION = "busy / (allocated − unmeasured − not_running)"
_EFFECTIVE = (
    "(busy + pending demand at the activity of its own kind) / (allocated + pending demand). Null "
    "by node or capacity type, by GPU model while work of a tier with several models is pending, "
    "and while the pending history of the window is incomplete"
)
_COVERAGE = "1 − unmeasured / (allocated − not_running)"


class GradesSerializer(serializers.Serializer[dict[str, float]]):
    """GPU-hours by how they came to be known; they sum to allocated."""

    measured = _hours()
    apportioned = _hours("Shared card: the card's activity divided among its tenants.")
    inferred = _hours("From kube-state-metrics or by elimination.")
    unmeasured = _hours("Running, and no device sample covers it.")


class HeldSerializer(serializers.Serializer[Any]):
    """What was allocated, and what became of it."""

    allocated_gpu_hours = _hours("The sum of the next five.")
    not_running_gpu_hours = _hours("Held while no container that requests GPU ran.")
    unmeasured_gpu_hours = _hours("Running, and no device sample covers it.")
    idle_gpu_hours = _hours("Not busy, in half hours of less than 10 % activity.")
    underused_gpu_hours = _hours("Not busy, in other measured half hours.")
    busy_gpu_hours = _hours("Measured time × mean activity.")
    burst_gpu_hours = _hours("Activity of shared cards above what was held; beside the ledger.")
    utilization_ratio = _ratio(_UTILIZATION)
    coverage_ratio = _ratio(_COVERAGE)
    grades = GradesSerializer()
    energy_kwh = serializers.FloatField(
        allow_null=True,
        help_text="Energy of the GPUs, kWh, each GPU once. Null where no exporter shows it.",
    )
    sm_active_ratio = _level("SMs with work")
    sm_measured_gpu_hours = _hours("The measured time of it; null where not exported.", null=True)
    tensor_active_ratio = _level("time of the tensor cores")
    tensor_measured_gpu_hours = _hours("As for SMs.", null=True)
    memory_copy_ratio = _level("time of the memory controller")
    memory_copy_measured_gpu_hours = _hours("As for SMs.", null=True)
    memory_peak_mib = serializers.FloatField(
        allow_null=True,
        help_text="Peak of the used memory of one device, MiB. Null where it is not exported.",
    )


class UsageSerializer(HeldSerializer):
    """The ledger of one period and group; a group's column is there when it was asked for."""

    period = _time(
        "Start of the period with the report zone's offset; null for a total.", null=True
    )
    cluster = serializers.CharField(required=False)
    tier = serializers.CharField(required=False)
    team = serializers.CharField(required=False)
    namespace = serializers.CharField(required=False)
    workload = serializers.CharField(required=False, help_text="Kind/name of the top controller.")
    gpu_model = serializers.CharField(required=False)
    capacity_type = serializers.ChoiceField([c.value for c in CapacityType], required=False)
    node = serializers.CharField(required=False)
    capacity_gpu_hours = _hours(f"unhealthy + unallocated + allocated. {_NO_CAPACITY}", null=True)
    unhealthy_gpu_hours = _hours(null=True)
    unallocated_gpu_hours = _hours(null=True)
    stranded_gpu_hours = _hours("Part of unallocated.", null=True)
    unattributed_gpu_hours = _hours("Activity that no pod explains; beside the ledger.", null=True)
    allocation_ratio = _ratio("allocated / capacity")
    effective_utilization_ratio = _ratio(_EFFECTIVE)
    hours_known = serializers.IntegerField(
        allow_null=True,
        help_text="Hours of the period in which the tier's claims are known. Null for tiers that "
        "series tell of, and unless grouped by tier.",
    )


class PodSerializer(HeldSerializer):
    """A pod of the ledger with what it held in the window.

    The ledger's columns are null where it held GPUs in the window and no hour of it was
    collected or is still kept: not known is not zero.
    """

    cluster = _text()
    namespace = _text()
    pod = _text()
    uid = _text()
    owner_kind = _text("Kind of the top controller; Pod for a bare pod.")
    owner = _text()
    team = _text()
    tier = _text(null=True)
    gpu_model = _text("Null until it is bound.", null=True)
    node = _text(null=True)
    resource = _text("As Kubernetes names it: nvidia.com/gpu.")
    units = serializers.FloatField(help_text="Units of the resource.")
    gpu_equivalents = serializers.FloatField(help_text="Units × weight; a physical card is 1.")
    created_at = _time()
    bound_at = _time("Null while it waits.", null=True)
    started_at = _time(null=True)
    finished_at = _time(null=True)
    end_reason = _text(null=True)

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        found = super().get_fields()
        for name in (*HELD_COLUMNS, "grades"):
            found[name].allow_null = True
        return found


class TierSerializer(serializers.Serializer[TierRow]):
    """A service tier as the catalog has it; what `sharing` and below say is its newest rule."""

    name = _text()
    sharing = serializers.ChoiceField(
        [s.value for s in GpuSharing], allow_null=True, help_text="Null for built-in tiers."
    )
    resources = serializers.ListField(child=serializers.CharField())
    device_classes = serializers.ListField(child=serializers.CharField())
    node_selector = serializers.DictField(child=serializers.CharField())
    promise = _text()
    allowed_teams = serializers.ListField(
        child=serializers.CharField(), help_text="Empty: every team."
    )
    builtin = serializers.BooleanField(help_text="Always there: unmatched, undetermined.")


class TeamSerializer(serializers.Serializer[TeamRow]):
    """A team as the catalog has it."""

    name = _text()
    cost_center = _text("Null where you do not see the team.", null=True)
    leads = serializers.ListField(
        child=serializers.CharField(),
        allow_null=True,
        help_text="Null where you do not see the team.",
    )
    namespaces = serializers.ListField(
        child=serializers.CharField(),
        allow_null=True,
        help_text="Patterns of names that it claims; null where you may not see them.",
    )
    builtin = serializers.BooleanField(help_text="Always there: unassigned.")

    def to_representation(self, instance: TeamRow) -> dict[str, Any]:
        shown = dict(super().to_representation(instance))
        if instance.namespaces is None:
            shown |= {"cost_center": None, "leads": None}
        return shown


class ClusterSerializer(serializers.Serializer[ClusterRow]):
    """A cluster as the catalog has it."""

    name = _text()
    prometheus_url = serializers.SerializerMethodField(
        help_text="Null unless you administer the portal."
    )
    scrape_interval_seconds = serializers.FloatField()
    has_kubernetes_api = serializers.BooleanField(
        help_text="False: its pod ledger comes from metrics."
    )
    watched_until = _time("Up to when `watch` saw every change.", null=True)

    def get_prometheus_url(self, row: ClusterRow) -> str | None:
        """Return the address where the context's `connections` allows it."""
        return (row.prometheus_url or None) if self.context["connections"] else None


class CollectionSerializer(serializers.Serializer[CollectionRow]):
    """The data quality of one hour of one cluster."""

    cluster = _text()
    hour = _time("Start of the hour.")
    state = serializers.ChoiceField([state.value for state in CollectionState])
    coverage_ratio = _ratio(_COVERAGE)
    samples = serializers.IntegerField(help_text="Device samples read.")
    attempts = serializers.IntegerField()
    error = _text(
        "What to do; null where there is none or you do not administer the portal.", null=True
    )


# ---------------------------------------------------------------- records


def usage_records(
    rows: Iterable[UsageRow],
    effective: Sequence[float | None],
    hours_known: Sequence[int | None],
) -> list[Record]:
    """Return what UsageSerializer describes; rows of a period follow each other.

    `effective` are their effective utilizations and `hours_known` their known hours of claims, in
    the same order.
    """
    records: list[Record] = []
    period: object = None  # known by identity: the hour that autumn repeats equals itself
    text: str | None = None
    for row, ratio, known in zip(rows, effective, hours_known, strict=True):
        if row.period is not None and row.period is not period:
            period, text = row.period, row.period.isoformat()
        records.append({"period": text, **row.groups, **ledger_record(row.amounts, ratio, known)})
    return records


def pod_records(rows: Iterable[PodRow], *, window: Window) -> list[Record]:
    """Return what PodSerializer describes, of pods that were read over `window`."""
    return [
        {
            "cluster": row.cluster,
            "namespace": row.namespace,
            "pod": row.pod,
            "uid": row.uid,
            "owner_kind": row.owner_kind,
            "owner": row.owner,
            "team": row.team,
            "tier": row.tier,
            "gpu_model": row.gpu_model,
            "node": row.node,
            "resource": row.resource,
            "units": row.units,
            "gpu_equivalents": row.gpu_equivalents,
            "created_at": utc_text(row.created_at),
            "bound_at": utc_text(row.bound_at),
            "started_at": utc_text(row.started_at),
            "finished_at": utc_text(row.finished_at),
            "end_reason": row.end_reason,
            **held_record(collected_amounts(row, window)),
        }
        for row in rows
    ]
