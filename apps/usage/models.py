"""Facts. Every amount is a whole number of nano-GPU-hours (1e-9), so that sums are exact.

`docs/adr/0001-amounts-are-integers.md` says why. Dimensions are small integer ids without
database constraints: these rows are written by the ten thousand and only by `usage.services`.
"""

from typing import Any, ClassVar

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Coalesce

from apps.clusters.models import CAPACITY_TYPES, ValidityPeriod, extension_of, forward
from apps.usage.domain.collection import CollectionState
from apps.usage.domain.serving import ServingState

HAS_FACTS = Q(
    state__in=(CollectionState.COMPLETE.value, CollectionState.PARTIAL.value), withheld=False
)
"""Which collection windows have facts: what they lack is not known, and never zero."""


class HeldAmounts(models.Model):
    """What was allocated, split by what became of it; `allocated` is the sum of the five.

    Of SM, tensor and memory copy activity: active GPU-hours, and the measured ones they are of;
    null where no exporter shows them. Of the energy of shared GPUs whose idle power is known:
    all of it, and its idle part.
    """

    allocated = models.BigIntegerField(default=0)
    not_running = models.BigIntegerField(default=0)
    unmeasured = models.BigIntegerField(default=0)
    idle = models.BigIntegerField(default=0)
    underused = models.BigIntegerField(default=0)
    busy = models.BigIntegerField(default=0)
    burst = models.BigIntegerField(default=0)
    allocated_on_unhealthy = models.BigIntegerField(default=0)
    grade_apportioned = models.BigIntegerField(default=0)
    grade_inferred = models.BigIntegerField(default=0)
    energy_mwh = models.BigIntegerField(default=0)
    memory_peak_mib = models.FloatField(null=True)
    sm_active = models.BigIntegerField(null=True)
    sm_measured = models.BigIntegerField(null=True)
    tensor_active = models.BigIntegerField(null=True)
    tensor_measured = models.BigIntegerField(null=True)
    memory_copy_active = models.BigIntegerField(null=True)
    memory_copy_measured = models.BigIntegerField(null=True)
    energy_split_mwh = models.BigIntegerField(null=True)
    energy_idle_mwh = models.BigIntegerField(null=True)

    class Meta:
        abstract = True


class CapacityAmounts(models.Model):
    """What there was: `capacity` = `planned_outage` + `unhealthy` + `unallocated` + `allocated`."""

    capacity = models.BigIntegerField(default=0)
    unhealthy = models.BigIntegerField(default=0)
    unallocated = models.BigIntegerField(default=0)
    stranded = models.BigIntegerField(default=0)
    unattributed = models.BigIntegerField(default=0)
    planned_outage = models.BigIntegerField(default=0, db_default=0)

    class Meta:
        abstract = True


def dimension(to: str, *, null: bool = False, related_name: str | None = None) -> Any:
    """Return a key of facts: the database checks and indexes none of ten thousand rows an hour."""
    return models.ForeignKey(
        to,
        null=null,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        related_name=related_name,
    )


class TierDimensions(models.Model):
    """The dimensions that every fact has; `named_by` is the one by which a row is printed."""

    named_by: ClassVar[str] = "tier_id"
    cluster = dimension("clusters.Cluster")
    tier = dimension("clusters.Tier")
    gpu_model = dimension("clusters.GpuModel")
    capacity_type = models.CharField(max_length=10, choices=CAPACITY_TYPES)

    class Meta:
        abstract = True


class TeamDimensions(TierDimensions):
    named_by = "team_id"
    team = dimension("accounts.Team")

    class Meta:
        abstract = True


class WorkloadDimensions(TeamDimensions):
    named_by = "workload_id"
    namespace = dimension("clusters.Namespace")
    workload = dimension("clusters.Workload")

    class Meta:
        abstract = True


class Hourly(models.Model):
    """A row of one UTC hour."""

    named_by: ClassVar[str]
    hour = models.DateTimeField()

    class Meta:
        abstract = True
        ordering = ["hour", "pk"]

    def __str__(self) -> str:
        return f"{getattr(self, self.named_by)} {self.hour}"


class Daily(models.Model):
    """A row of one local day."""

    named_by: ClassVar[str]
    day = models.DateField()

    class Meta:
        abstract = True
        ordering = ["day", "pk"]

    def __str__(self) -> str:
        return f"{getattr(self, self.named_by)} {self.day}"


class PodHour(Hourly, WorkloadDimensions, HeldAmounts):
    """One pod in one hour: the finest fact; kept for the hourly retention.

    `activity` has a letter for each of its devices in each slot (`usage.domain.activity`).
    """

    named_by = "pod_id"
    activity = models.TextField(blank=True, default="", db_default="")
    pod = dimension("clusters.Pod")
    node = dimension("clusters.Node", null=True)

    class Meta(Hourly.Meta):
        indexes = [
            models.Index(fields=["cluster", "hour"], name="pod_hour_hour"),
            models.Index(fields=["pod", "hour"], name="pod_hour_pod"),
            models.Index(fields=["workload", "hour"], name="pod_hour_workload"),
        ]


class ServingHour(Hourly, WorkloadDimensions):
    """What a model served from one pod in one hour; kept as long as the hours of pods.

    `measured` is the nano-GPU-hours of the pod for which its series are there, divided among its
    models; all else is of this time. What the server does not export is null. Of `first_tokens`
    (answers that began) `first_tokens_in_time` met the objective that held on collecting, which is
    kept with them (`ttft_objective_ms`; null in hours of versions without it). `running` and
    `waiting` requests and `kv_cache` (0..1) are means.
    """

    named_by = "pod_id"
    pod = dimension("clusters.Pod")
    model = models.CharField(max_length=200, blank=True)
    engine = models.CharField(max_length=20)
    measured = models.BigIntegerField(default=0)
    measured_seconds = models.PositiveIntegerField(default=0)
    tokens_in = models.BigIntegerField(null=True)
    tokens_out = models.BigIntegerField(null=True)
    requests = models.BigIntegerField(null=True)
    first_tokens = models.BigIntegerField(null=True)
    first_tokens_in_time = models.BigIntegerField(null=True)
    ttft_objective_ms = models.PositiveIntegerField(null=True)
    running = models.FloatField(null=True)
    waiting = models.FloatField(null=True)
    kv_cache = models.FloatField(null=True)

    class Meta(Hourly.Meta):
        indexes = [
            models.Index(fields=["cluster", "hour"], name="serving_hour_hour"),
            models.Index(fields=["workload", "hour"], name="serving_hour_workload"),
        ]


class ServingObjective(ValidityPeriod):
    """The time to first token that services are to keep in a span; an empty pattern matches all.

    Of several that match a service the one of the lowest `position` is its objective.
    """

    position = models.PositiveIntegerField()
    cluster = models.ForeignKey("clusters.Cluster", null=True, on_delete=models.CASCADE)
    namespace = models.CharField(max_length=63, blank=True)
    workload = models.CharField(max_length=317, blank=True)
    model = models.CharField(max_length=200, blank=True)
    ttft_ms = models.PositiveIntegerField()

    class Meta:
        ordering = ["valid_from", "position", "pk"]
        constraints = [
            models.UniqueConstraint(
                Coalesce("cluster", 0),
                *("namespace", "workload", "model", "valid_from"),
                name="serving_objective_once",
            ),
            models.CheckConstraint(condition=Q(ttft_ms__gt=0), name="serving_objective_above_zero"),
            forward("valid_from", "valid_to", name="serving_objective_forward"),
        ]

    def __str__(self) -> str:
        return f"{self.namespace} {self.workload} {self.model}: {self.ttft_ms} ms"


class DeviceHealthHour(Hourly):
    """What went wrong on a GPU in one hour; kept as long as the hours of pods.

    Only hours in which something did, or whose series had no numbers, have a row: what was exported
    at all is in `CollectionWindow.health`. `xids` are [Unix seconds, code], when each was shown
    first. Rows and ECC errors are those that came in the hour, `thermal_seconds` and
    `power_seconds` how long its clocks were held down. What was not exported, or had no number, is
    null.
    """

    named_by = "uuid"
    cluster = dimension("clusters.Cluster")
    uuid = models.CharField(max_length=253)
    node_name = models.CharField(max_length=253, blank=True)
    xids = models.JSONField(default=list)
    remapped_correctable = models.BigIntegerField(null=True)
    remapped_uncorrectable = models.BigIntegerField(null=True)
    ecc_corrected = models.BigIntegerField(null=True)
    ecc_uncorrected = models.BigIntegerField(null=True)
    thermal_seconds = models.FloatField(null=True)
    power_seconds = models.FloatField(null=True)

    class Meta(Hourly.Meta):
        indexes = [models.Index(fields=["cluster", "hour"], name="device_health_hour")]


class PodDevices(models.Model):
    """The GPUs on which a pod was seen, of those that are not shared.

    A table of its own: which GPU a pod has is known by metrics alone, and pods are written by the
    watch. `uuids` are parted by spaces, in order.
    """

    pod = extension_of("clusters.Pod", "on_devices")
    uuids = models.TextField()

    class Meta:
        ordering = ["pod"]

    def __str__(self) -> str:
        return f"{self.pod_id}: {self.uuids}"


class SavedStates(models.Model):
    """When the work of a pod saved its state by series: the last checkpoint of each run.

    A table of its own for the reason that devices have one. `times` are Unix seconds, in order.
    """

    pod = extension_of("clusters.Pod", "saved_states")
    times = models.JSONField()

    class Meta:
        ordering = ["pod"]

    def __str__(self) -> str:
        return f"{self.pod_id}: {self.times}"


class TeamHour(Hourly, TeamDimensions, HeldAmounts):
    """The sum of a team's pods on a tier in one hour; kept for good.

    `allocated_first` is what of `allocated` lies in the first of the hour's two slots; null of
    hours that were collected before the two were told apart.
    """

    allocated_first = models.BigIntegerField(null=True)

    class Meta(Hourly.Meta):
        indexes = [
            models.Index(fields=["cluster", "hour"], name="team_hour_hour"),
            models.Index(fields=["team", "hour"], name="team_hour_team"),
        ]


class NodeHour(Hourly, TierDimensions, HeldAmounts, CapacityAmounts):
    """The whole ledger of one node's share of a tier in one hour; hourly retention."""

    named_by = "node_id"
    node = dimension("clusters.Node")

    class Meta(Hourly.Meta):
        indexes = [models.Index(fields=["cluster", "hour"], name="node_hour_hour")]


class TierHour(Hourly, TierDimensions, HeldAmounts, CapacityAmounts):
    """The whole ledger of a tier in one hour; kept for good.

    `capacity_first` is what of `capacity` lies in the first of the hour's two slots; null of
    hours that were collected before the two were told apart.
    """

    capacity_first = models.BigIntegerField(null=True)

    class Meta(Hourly.Meta):
        indexes = [models.Index(fields=["cluster", "hour"], name="tier_hour_hour")]


class WorkloadDay(Daily, WorkloadDimensions, HeldAmounts):
    """The sum of a workload's pods over one local day, made when the day is rolled."""

    class Meta(Daily.Meta):
        indexes = [
            models.Index(fields=["cluster", "day"], name="workload_day_day"),
            models.Index(fields=["team", "day"], name="workload_day_team"),
            models.Index(fields=["workload", "day"], name="workload_day_workload"),
        ]


class WorkloadActivityDay(Daily, WorkloadDimensions):
    """How active a workload's devices were on a local day; kept as long as hourly rows.

    `slots` counts devices and slots by class of activity (`usage.domain.activity`). `resource` is
    what its pods ask for (empty: several), `least_units` and `most_units` how much of it. `gpus`
    has the highest class of each device of each pod (by id, as letters), where pods have several
    devices and each pod left one of them idle; null: that is not so, or not known.

    `head`, `tail` and `idle_after` are nano-GPU-hours of waste in quiet hours of its pods, the last
    by hour of the day; `idle_pods` counts the pods of it (`usage.domain.activity`).
    """

    slots = models.JSONField(default=list)
    resource = models.CharField(max_length=253, blank=True)
    least_units = models.FloatField(default=0)
    most_units = models.FloatField(default=0)
    gpus = models.JSONField(null=True)
    head = models.BigIntegerField(default=0, db_default=0)
    tail = models.BigIntegerField(default=0, db_default=0)
    idle_after = models.JSONField(null=True)
    idle_pods = models.PositiveIntegerField(default=0, db_default=0)

    class Meta(Daily.Meta):
        indexes = [models.Index(fields=["cluster", "tier", "day"], name="workload_activity_day")]


class TeamDay(Daily, TeamDimensions, HeldAmounts):
    class Meta(Daily.Meta):
        indexes = [
            models.Index(fields=["cluster", "day"], name="team_day_day"),
            models.Index(fields=["team", "day"], name="team_day_team"),
        ]


class TierDay(Daily, TierDimensions, HeldAmounts, CapacityAmounts):
    class Meta(Daily.Meta):
        indexes = [models.Index(fields=["day", "cluster"], name="tier_day_day")]


class Day(models.Model):
    """A local day of a cluster and its UTC span.

    `rolled`: its workload sums are up to date. `pruned`: its hourly rows by pod are gone.
    `folded`: work that came once under its name is summed by namespace and kind.
    """

    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE)
    day = models.DateField()
    start = models.DateTimeField()
    end = models.DateTimeField()
    # One after the other: rolled while hours are there, pruned after, folded last of all.
    rolled = models.BooleanField(default=False)
    pruned = models.BooleanField(default=False)
    folded = models.BooleanField(default=False)

    class Meta:
        ordering = ["cluster", "day"]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "day"], name="day_once"),
            models.CheckConstraint(condition=Q(end__gt=F("start")), name="day_forward"),
        ]

    def __str__(self) -> str:
        return f"{self.cluster_id} {self.day}"


class ExporterSetUp(models.Model):
    """How a cluster's device exporters showed themselves in some hours; `profile` as JSON."""

    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE)
    # Of the sorted JSON, which no database can hold unique by itself.
    digest = models.CharField(max_length=64)
    profile = models.JSONField(default=dict)

    class Meta:
        ordering = ["cluster", "pk"]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "digest"], name="exporter_set_up_once"),
        ]

    def __str__(self) -> str:
        return f"{self.cluster_id} {self.digest[:8]}"


class CollectionWindow(models.Model):
    """One hour of one cluster: whether its facts are there and how good they are.

    `lease_until` is set while somebody works on it; beat enqueues again what expired. `partials`
    counts partial outcomes in a row.
    `findings` counts what was noticed (finding → times), `error` is for a person to act on.
    `serving` says whether the series of inference servers were read; empty: not asked for.
    `health` names the measures of GPUs' health that were exported, parted by spaces.
    `slots_without_pods` counts the half hours of which neither the watch nor series tell the pods.

    `withheld`: its sources contradict each other, so that it is partial and has no facts.
    `evidence` is what other hours are held against (`ReferenceHour`). At
    `again_at` it is looked at once more, whatever its state.
    """

    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE)
    hour = models.DateTimeField()
    state = models.CharField(max_length=10, choices=[(s.value, s.value) for s in CollectionState])
    coverage_ratio = models.FloatField(null=True, blank=True)
    samples = models.BigIntegerField(default=0)
    attempts = models.PositiveIntegerField(default=0)
    partials = models.PositiveIntegerField(default=0)
    error = models.TextField(blank=True)
    findings = models.JSONField(default=dict)
    warnings = models.JSONField(default=list)
    ledger_source = models.CharField(max_length=8, blank=True)
    serving = models.CharField(
        max_length=10,
        choices=[(s.value, s.value) for s in ServingState],
        blank=True,
        default="",
        db_default="",
    )
    health = models.CharField(max_length=200, blank=True, default="", db_default="")
    slots_without_pods = models.PositiveSmallIntegerField(default=0, db_default=0)
    scrape_interval_seconds = models.FloatField(null=True, blank=True)
    activity_metric = models.CharField(max_length=80, blank=True)
    exporters = models.ForeignKey(
        "usage.ExporterSetUp", null=True, blank=True, on_delete=models.SET_NULL
    )
    duration_seconds = models.FloatField(null=True, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    attempted_at = models.DateTimeField(null=True, blank=True)
    collected_at = models.DateTimeField(null=True, blank=True)
    withheld = models.BooleanField(default=False, db_default=False)
    evidence = models.JSONField(default=dict)
    again_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-hour", "cluster"]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "hour"], name="collection_once"),
        ]
        indexes = [
            models.Index(fields=["-hour", "cluster"], name="collection_hour"),
            models.Index(
                # Few hours have one, and every run of the scheduler reads them.
                fields=["again_at"],
                condition=Q(again_at__isnull=False),
                name="collection_again",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.cluster_id} {self.hour} {self.state}"


class QueueHour(models.Model):
    """An hour in which Kueue's series show queues, of which somebody did not watch all.

    `due`: the pending history does not have it yet, or has something else of it since.
    """

    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE)
    hour = models.DateTimeField()
    due = models.BooleanField(default=True, db_default=True)

    class Meta:
        ordering = ["-hour", "cluster"]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "hour"], name="queue_hour_once"),
        ]
        indexes = [
            models.Index(fields=["cluster", "hour"], condition=Q(due=True), name="queue_hour_due"),
        ]

    def __str__(self) -> str:
        return f"{self.cluster_id} {self.hour}"


class QueuePending(models.Model):
    """Mean of what was pending in a queue of Kueue over one slot, as its series show it.

    Of a ClusterQueue `units` of a GPU resource, or its number of `workloads`, which has no
    `resource`; null is what is not exported. With a `namespace` it is a LocalQueue. `tier` and
    `unit_weight` (GPU-equivalents) are what the resource alone tells on the nodes of the hour.
    """

    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE)
    hour = models.DateTimeField()
    slot = models.DateTimeField()
    namespace = models.CharField(max_length=253, blank=True)
    queue = models.CharField(max_length=253)
    resource = models.CharField(max_length=253, blank=True)
    units = models.FloatField(null=True, blank=True)
    workloads = models.FloatField(null=True, blank=True)
    tier = models.ForeignKey("clusters.Tier", null=True, blank=True, on_delete=models.SET_NULL)
    unit_weight = models.FloatField(default=0.0)

    class Meta:
        ordering = ["slot", "namespace", "queue", "resource"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "slot", "namespace", "queue", "resource"],
                name="queue_pending_once",
            ),
        ]
        indexes = [models.Index(fields=["cluster", "hour"], name="queue_pending_hour")]

    def __str__(self) -> str:
        return f"{self.queue} at {self.slot}"


class PlannedOutage(models.Model):
    """A node that is away by intention from `start` to `end`, as somebody announced beforehand.

    `purpose` says what for, `author` who announced it. One that was canceled before it began is
    `canceled`; one that was ended early has that `end`.
    """

    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE)
    node_name = models.CharField(max_length=253)
    start = models.DateTimeField()
    end = models.DateTimeField()
    purpose = models.CharField(max_length=200)
    author = models.CharField(max_length=150)
    created_at = models.DateTimeField()
    canceled = models.BooleanField(default=False, db_default=False)

    class Meta:
        ordering = ["-start", "cluster", "node_name", "pk"]
        indexes = [models.Index(fields=["cluster", "end"], name="planned_outage_end")]
        constraints = [
            models.CheckConstraint(
                condition=Q(end__gt=F("start")) | Q(canceled=True), name="planned_outage_forward"
            )
        ]

    def __str__(self) -> str:
        return f"{self.node_name} from {self.start}"


class OutageHour(Hourly, TierDimensions):
    """What planned outages took of one node's share of a tier in one hour; kept for good.

    `unhealthy` and `unallocated` say what each would have been more without the outage: together
    they are the ledger's `planned_outage`. `first` is what of both lies in the first of the hour's
    two slots.
    """

    named_by = "node_id"
    node = dimension("clusters.Node")
    unhealthy = models.BigIntegerField(default=0)
    unallocated = models.BigIntegerField(default=0)
    first = models.BigIntegerField(default=0)

    class Meta(Hourly.Meta):
        indexes = [models.Index(fields=["hour", "cluster"], name="outage_hour_hour")]
