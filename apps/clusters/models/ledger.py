"""What exists and existed: namespaces, nodes, workloads and the pod ledger."""

from django.db import models
from django.db.models import F, Q

from apps.clusters.domain.pods.ledger import PodSource

SOURCES = [(s.value, s.value) for s in PodSource]


class Namespace(models.Model):
    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE)
    name = models.CharField(max_length=253)

    class Meta:
        ordering = ["cluster", "name"]
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="namespace_once")]

    def __str__(self) -> str:
        return self.name


class GpuModel(models.Model):
    """A GPU model as first seen; `key` is what is compared (no blanks, dashes or case)."""

    name = models.CharField(max_length=120)
    key = models.CharField(max_length=120, unique=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Node(models.Model):
    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE)
    name = models.CharField(max_length=253)

    class Meta:
        ordering = ["cluster", "name"]
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="node_once")]

    def __str__(self) -> str:
        return self.name


class NodeInterval(models.Model):
    """A span in which a node's GPU capacity, health and labels did not change (from the API).

    `devices` are those that ResourceSlices offer on it, each with the fields of `OfferedDevice`.
    """

    node = models.ForeignKey("clusters.Node", on_delete=models.CASCADE, related_name="intervals")
    start = models.DateTimeField()
    end = models.DateTimeField(null=True, blank=True)
    ready = models.BooleanField()
    schedulable = models.BooleanField()
    capacity = models.JSONField(default=dict)
    allocatable = models.JSONField(default=dict)
    labels = models.JSONField(default=dict)
    devices = models.JSONField(default=list)

    class Meta:
        ordering = ["node", "start"]
        constraints = [
            models.UniqueConstraint(fields=["node", "start"], name="node_interval_once"),
            models.CheckConstraint(
                condition=Q(end__isnull=True) | Q(end__gt=F("start")),
                name="node_interval_ends_after_start",
            ),
        ]
        indexes = [models.Index(fields=["end"], name="node_interval_end")]

    def __str__(self) -> str:
        return f"{self.node_id} from {self.start}"


class Workload(models.Model):
    """The top controller of pods: (cluster, namespace, kind, name); a bare pod is its own."""

    namespace = models.ForeignKey("clusters.Namespace", on_delete=models.CASCADE)
    kind = models.CharField(max_length=63)
    name = models.CharField(max_length=253)

    class Meta:
        ordering = ["namespace", "kind", "name"]
        constraints = [
            models.UniqueConstraint(fields=["namespace", "kind", "name"], name="workload_once")
        ]

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


class Pod(models.Model):
    """The pod ledger: one row per pod that asked for GPU; times to the second.

    `requests` maps resource or device class to units, `runs` lists [start, end or null] in Unix
    seconds, `claims` the uids of the ResourceClaims that it asks for GPUs by. An allocated claim
    has a row of its own too, of the workload kind ResourceClaim, bound while it is allocated.
    `lost` marks a pod that went while nobody watched: its end is the last time it was seen.
    `observed_until` is until when series showed a pod that no watch saw; None for others.
    `unschedulable` says that series showed a scheduler refusing it. `revised_at` is when series
    last changed a row that was there already; null where they never did.
    """

    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE)
    uid = models.CharField(max_length=64)
    workload = models.ForeignKey("clusters.Workload", on_delete=models.CASCADE)
    name = models.CharField(max_length=253)
    node_name = models.CharField(max_length=253, blank=True)
    resource = models.CharField(max_length=253)
    units = models.FloatField()
    requests = models.JSONField(default=dict)
    node_selector = models.JSONField(default=dict)
    priority_class = models.CharField(max_length=253, blank=True)
    created_at = models.DateTimeField()
    bound_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    observed_until = models.DateTimeField(null=True, blank=True)
    runs = models.JSONField(default=list)
    claims = models.JSONField(default=list)
    end_reason = models.CharField(max_length=120, blank=True)
    source = models.CharField(max_length=8, choices=SOURCES)
    lost = models.BooleanField(default=False)
    unschedulable = models.BooleanField(default=False, db_default=False)
    revised_at = models.DateTimeField(null=True, blank=True)
    tier = models.ForeignKey("clusters.Tier", null=True, on_delete=models.SET_NULL)
    gpu_model = models.ForeignKey("clusters.GpuModel", null=True, on_delete=models.SET_NULL)
    gpu_equivalents = models.FloatField(default=0.0)

    class Meta:
        ordering = ["-created_at", "pk"]
        constraints = [models.UniqueConstraint(fields=["cluster", "uid"], name="pod_once")]
        indexes = [
            models.Index(fields=["cluster", "ended_at", "created_at"], name="pod_lifetime"),
            models.Index(fields=["workload", "-created_at"], name="pod_of_workload"),
            models.Index(fields=["bound_at"], name="pod_bound"),
            models.Index(fields=["ended_at"], name="pod_ended"),
            models.Index(
                fields=["cluster", "revised_at"],
                name="pod_revised",
                condition=Q(revised_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return self.name


class PodRevision(models.Model):
    """How often what is known of the pods that lived in an hour has changed; no row: never."""

    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE)
    hour = models.DateTimeField()
    number = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["cluster", "hour"]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "hour"], name="pod_revision_once")
        ]

    def __str__(self) -> str:
        return f"{self.cluster_id} {self.hour}: {self.number}"


class WatchCoverage(models.Model):
    """A span in which `watch` saw every change of a cluster's pods and nodes."""

    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE)
    start = models.DateTimeField()
    end = models.DateTimeField()

    class Meta:
        ordering = ["cluster", "start"]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "start"], name="watch_span_once"),
            models.CheckConstraint(condition=Q(end__gte=F("start")), name="watch_span_forward"),
        ]

    def __str__(self) -> str:
        return f"{self.cluster_id}: {self.start} .. {self.end}"


class WatchIssue(models.Model):
    """What keeps `watch` from seeing all of a cluster, in words for who can change that.

    `subject` says what it is about, as `resourceclaims`; the row goes when the matter is settled.
    """

    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE)
    subject = models.CharField(max_length=120)
    text = models.TextField()
    since = models.DateTimeField()

    class Meta:
        ordering = ["cluster", "subject"]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "subject"], name="watch_note_once")
        ]

    def __str__(self) -> str:
        return f"{self.cluster_id}: {self.subject}"
