"""Tables of what exists and existed: clusters, namespaces, nodes, tiers and the pod ledger."""

from django.db import models
from django.db.models import F, Q

from apps.clusters.domain.ledger import Source
from apps.clusters.domain.tiers import CapacityType, Sharing

SOURCES = [(s.value, s.value) for s in Source]


class Valid(models.Model):
    """A row of the catalog that holds from `valid_from` until, not including, `valid_to`."""

    valid_from = models.DateTimeField()
    valid_to = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True


class Cluster(models.Model):
    """A cluster of the catalog; `prometheus` and `kubernetes` hold its connection as loaded."""

    name = models.CharField(max_length=120, unique=True)
    prometheus = models.JSONField(default=dict)
    kubernetes = models.JSONField(null=True, blank=True)
    active = models.BooleanField(default=True)
    collect_from = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class ReportSettings(models.Model):
    """The report's time zone and currency; one row."""

    time_zone = models.CharField(max_length=64, default="UTC")
    currency = models.CharField(max_length=3, default="USD")

    def __str__(self) -> str:
        return f"{self.time_zone}, {self.currency}"


class Tier(models.Model):
    """A service tier's name and place in the catalog; what it matches is in its rules."""

    name = models.CharField(max_length=120, unique=True)
    position = models.PositiveIntegerField(default=0)
    promise = models.TextField(blank=True)
    active = models.BooleanField(default=True)
    builtin = models.BooleanField(default=False)

    class Meta:
        ordering = ["position", "name"]

    def __str__(self) -> str:
        return self.name


class TierRule(Valid):
    """What a tier matched in a span of time."""

    tier = models.ForeignKey("clusters.Tier", on_delete=models.CASCADE, related_name="rules")
    position = models.PositiveIntegerField()
    sharing = models.CharField(max_length=16, choices=[(s.value, s.value) for s in Sharing])
    resources = models.JSONField(default=list)
    device_classes = models.JSONField(default=list)
    node_selector = models.JSONField(default=dict)
    allowed_teams = models.JSONField(default=list)

    class Meta:
        ordering = ["valid_from", "position", "pk"]
        constraints = [
            models.UniqueConstraint(fields=["tier", "valid_from"], name="tier_rule_once"),
            models.CheckConstraint(
                condition=Q(valid_to__isnull=True) | Q(valid_to__gt=F("valid_from")),
                name="tier_rule_ends_after_start",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tier_id} from {self.valid_from}"


class NamespaceClaim(Valid):
    """A pattern of namespace names that a team claimed in a span of time."""

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="claims")
    position = models.PositiveIntegerField(default=0)
    pattern = models.CharField(max_length=253)

    class Meta:
        ordering = ["valid_from", "position", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["team", "pattern", "valid_from"], name="namespace_claim_once"
            ),
            models.CheckConstraint(
                condition=Q(valid_to__isnull=True) | Q(valid_to__gt=F("valid_from")),
                name="namespace_claim_ends_after_start",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.team_id}: {self.pattern}"


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


class NodeSpell(models.Model):
    """A span in which a node's GPU capacity, health and labels did not change (from the API)."""

    node = models.ForeignKey("clusters.Node", on_delete=models.CASCADE, related_name="spells")
    start = models.DateTimeField()
    end = models.DateTimeField(null=True, blank=True)
    ready = models.BooleanField()
    schedulable = models.BooleanField()
    capacity = models.JSONField(default=dict)
    allocatable = models.JSONField(default=dict)
    labels = models.JSONField(default=dict)

    class Meta:
        ordering = ["node", "start"]
        constraints = [
            models.UniqueConstraint(fields=["node", "start"], name="node_spell_once"),
            models.CheckConstraint(
                condition=Q(end__isnull=True) | Q(end__gt=F("start")),
                name="node_spell_ends_after_start",
            ),
        ]
        indexes = [models.Index(fields=["end"], name="node_spell_end")]

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

    `requests` maps resource to units, `runs` lists [start, end or null] in Unix seconds.
    `lost` marks a pod that went while nobody watched: its end is the last time it was seen.
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
    runs = models.JSONField(default=list)
    end_reason = models.CharField(max_length=120, blank=True)
    source = models.CharField(max_length=8, choices=SOURCES)
    lost = models.BooleanField(default=False)
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
        ]

    def __str__(self) -> str:
        return self.name


class WatchSpan(models.Model):
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


CAPACITY_TYPES = [(c.value, c.value) for c in CapacityType]
