"""Tables of what exists and existed."""

from datetime import datetime
from typing import Any

from django.db import models
from django.db.models import F, Q

from apps.clusters.domain.devices.state import Health
from apps.clusters.domain.pods.ledger import PodSource
from apps.clusters.domain.tiers import CapacityType, GpuSharing
from apps.clusters.domain.window import Window

CAPACITY_TYPES = [(c.value, c.value) for c in CapacityType]
SOURCES = [(s.value, s.value) for s in PodSource]
HEALTHS = [(h.value, h.value) for h in Health]


def holds_after(at: datetime, prefix: str = "") -> Q:
    """Return what rows meet that go on to hold after `at`; they may begin later."""
    return Q(**{f"{prefix}valid_to__isnull": True}) | Q(**{f"{prefix}valid_to__gt": at})


def holds_at(at: datetime, prefix: str = "") -> Q:
    """Return what rows meet that hold at `at`."""
    return Q(**{f"{prefix}valid_from__lte": at}) & holds_after(at, prefix)


def holds_within(window: Window) -> Q:
    """Return what rows meet that hold at any time of a window."""
    return Q(valid_from__lt=window.end) & holds_after(window.start)


def extension_of(to: str, name: str) -> Any:
    """Return the key of a table that extends some rows of another, where it is called `name`.

    Without a constraint in the database: pods are deleted by the thousand, with none of these.
    """
    return models.OneToOneField(
        to,
        primary_key=True,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        related_name=name,
    )


def forward(start: str, end: str, *, name: str, instant: bool = False) -> models.CheckConstraint:
    """Return the constraint that a span ends after its start, `instant`: or with it; null: open."""
    later = Q(**{f"{end}__gte" if instant else f"{end}__gt": F(start)})
    return models.CheckConstraint(condition=Q(**{f"{end}__isnull": True}) | later, name=name)


class ValidityPeriod(models.Model):
    """A row of the catalog that holds from `valid_from` until, not including, `valid_to`."""

    valid_from = models.DateTimeField()
    valid_to = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True


class Cluster(models.Model):
    """A cluster of the catalog; `prometheus` and `kubernetes` hold its connection as loaded.

    `slurm` is that of a cluster known by its job log, which has neither of the two.
    """

    name = models.CharField(max_length=120, unique=True)
    prometheus = models.JSONField(default=dict)
    kubernetes = models.JSONField(null=True, blank=True)
    slurm = models.JSONField(null=True, blank=True)
    active = models.BooleanField(default=True)
    collect_from = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class ReportSettings(models.Model):
    """The report's time zone and currency; one row.

    `exchange_rates` maps month (`2026-10`) → currency → [rate, source]: what one unit of it is
    worth in `currency` in that month, a decimal number as text. Null where the catalog has none.
    """

    time_zone = models.CharField(max_length=64, default="UTC")
    currency = models.CharField(max_length=3, default="USD")
    exchange_rates = models.JSONField(null=True, blank=True)

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


class TierRule(ValidityPeriod):
    """What a tier matched in a span of time."""

    tier = models.ForeignKey("clusters.Tier", on_delete=models.CASCADE, related_name="rules")
    position = models.PositiveIntegerField()
    sharing = models.CharField(max_length=16, choices=[(s.value, s.value) for s in GpuSharing])
    resources = models.JSONField(default=list)
    device_classes = models.JSONField(default=list)
    node_selector = models.JSONField(default=dict)
    allowed_teams = models.JSONField(default=list)

    class Meta:
        ordering = ["valid_from", "position", "pk"]
        constraints = [
            models.UniqueConstraint(fields=["tier", "valid_from"], name="tier_rule_once"),
            forward("valid_from", "valid_to", name="tier_rule_ends_after_start"),
        ]

    def __str__(self) -> str:
        return f"{self.tier_id} from {self.valid_from}"


class NamespaceTeam(ValidityPeriod):
    """A pattern of names: such namespaces belong to the team in a span of time."""

    team = models.ForeignKey(
        "accounts.Team", on_delete=models.CASCADE, related_name="namespace_teams"
    )
    position = models.PositiveIntegerField(default=0)
    pattern = models.CharField(max_length=253)

    class Meta:
        # Table and constraints have the names of the first release: a rename would stop it.
        db_table = "clusters_namespaceclaim"
        ordering = ["valid_from", "position", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["team", "pattern", "valid_from"], name="namespace_claim_once"
            ),
            forward("valid_from", "valid_to", name="namespace_claim_ends_after_start"),
        ]

    def __str__(self) -> str:
        return f"{self.team_id}: {self.pattern}"


class NamedInCluster(models.Model):
    """What has a name of its own in a cluster."""

    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE)
    name = models.CharField(max_length=253)

    class Meta:
        abstract = True
        ordering = ["cluster", "name"]
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="%(class)s_once")]

    def __str__(self) -> str:
        return self.name


class Namespace(NamedInCluster):
    """A namespace of a cluster."""


class GpuModel(models.Model):
    """A GPU model as first seen; `key` is what is compared (no blanks, dashes or case)."""

    name = models.CharField(max_length=120)
    key = models.CharField(max_length=120, unique=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Node(NamedInCluster):
    """A node of a cluster."""


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
            forward("start", "end", name="node_interval_ends_after_start"),
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
    seconds, `claims` the uids of the ResourceClaims by which it requests GPUs. An allocated claim
    has a row of its own too, of the workload kind ResourceClaim, bound while it is allocated.
    `lost` marks a pod that went during a gap of the watch: its end is the last time it was seen.
    `observed_until` is until when series showed a pod that no watch saw; None for others.
    `estimated` names those times of a pod of series that are estimates (`created,bound`).
    `unschedulable` says that series showed a scheduler refusing it. `revised_at` is when series
    last changed a row that was there already; null where they never did. `queue` and `gang` are
    names in its namespace, `priority` what its class stood for; null where only series showed it.
    `exits` lists [at, reason] of its containers, `checkpoints` times, both in Unix seconds; null
    in rows that an older version wrote.
    `kept_for_latency`: it is marked to stay, however idle, so that answers come quickly. `gpus` are
    the UUIDs of those of which its scheduler gave it parts, parted by spaces.
    """

    # Without indexes of their own: `pod_lifetime` and `pod_of_workload` begin with them.
    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE, db_index=False)
    uid = models.CharField(max_length=64)
    workload = models.ForeignKey("clusters.Workload", on_delete=models.CASCADE, db_index=False)
    name = models.CharField(max_length=253)
    node_name = models.CharField(max_length=253, blank=True)
    # `resource` and `units` repeat the main one of `requests`: lists filter and sort by them.
    resource = models.CharField(max_length=253)
    units = models.FloatField()
    requests = models.JSONField(default=dict)
    node_selector = models.JSONField(default=dict)
    priority_class = models.CharField(max_length=253, blank=True)
    queue = models.CharField(max_length=253, blank=True, db_default="")
    gang = models.CharField(max_length=253, blank=True, db_default="")
    priority = models.IntegerField(null=True, blank=True)
    created_at = models.DateTimeField()
    bound_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True)
    # `finished_at`, else `deleted_at`: a column of its own, for the index on lifetimes.
    ended_at = models.DateTimeField(null=True, blank=True)
    observed_until = models.DateTimeField(null=True, blank=True)
    runs = models.JSONField(default=list)
    claims = models.JSONField(default=list)
    exits = models.JSONField(null=True)
    checkpoints = models.JSONField(null=True)
    end_reason = models.CharField(max_length=120, blank=True)
    source = models.CharField(max_length=8, choices=SOURCES)
    lost = models.BooleanField(default=False)
    estimated = models.CharField(max_length=40, blank=True, db_default="")
    unschedulable = models.BooleanField(default=False, db_default=False)
    kept_for_latency = models.BooleanField(default=False, db_default=False)
    gpus = models.TextField(blank=True, default="", db_default="")
    revised_at = models.DateTimeField(null=True, blank=True)
    tier = models.ForeignKey("clusters.Tier", null=True, on_delete=models.SET_NULL)
    gpu_model = models.ForeignKey("clusters.GpuModel", null=True, on_delete=models.SET_NULL)
    # Of all its units together, as they counted when the pod was bound.
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


class PodPerson(models.Model):
    """Who is behind a pod, where the portal is set to keep that (`GPUPORTAL_PEOPLE`).

    A table of its own: its rows are deleted long before those of pods, and all of them at once.
    """

    pod = extension_of("clusters.Pod", "behind")
    person = models.CharField(max_length=253, db_index=True)

    class Meta:
        ordering = ["pod"]

    def __str__(self) -> str:
        return f"{self.pod_id}: {self.person}"


class FormerPerson(models.Model):
    """A name that was given to another person: work from `before` names no person any more.

    It stays, so that hours that are collected again do not bring back whose that work was.
    """

    person = models.CharField(max_length=253, primary_key=True)
    before = models.DateTimeField()

    class Meta:
        ordering = ["person"]

    def __str__(self) -> str:
        return f"{self.person} before {self.before}"


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


class ClaimInterval(models.Model):
    """One allocation of a ResourceClaim to GPUs; a claim freed and allocated again has two.

    `devices` has the fields of `ClaimedDevice` for each, without those given for administration.
    """

    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE)
    uid = models.CharField(max_length=64)
    namespace = models.CharField(max_length=253)
    name = models.CharField(max_length=253)
    node_name = models.CharField(max_length=253, blank=True)
    allocated_at = models.DateTimeField()
    released_at = models.DateTimeField(null=True, blank=True)
    devices = models.JSONField(default=list)

    class Meta:
        ordering = ["cluster", "uid", "allocated_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "uid", "allocated_at"], name="claim_interval_once"
            ),
            forward("allocated_at", "released_at", name="claim_interval_forward", instant=True),
        ]
        indexes = [models.Index(fields=["cluster", "released_at"], name="claim_interval_end")]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} from {self.allocated_at}"


class Device(models.Model):
    """A GPU, or a MIG instance of one (`uuid` is then its GPU's), and its newest state.

    `state` has the fields of `DeviceState` as it was when it was `last_seen`; `reasons` tell why
    `health` is what it is, since `health_since`. `looked_at` is the newest look at its cluster.
    `place` sorts the devices of a node.
    """

    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE)
    uuid = models.CharField(max_length=253)
    gpu_instance = models.CharField(max_length=16, blank=True)
    node_name = models.CharField(max_length=253, blank=True)
    place = models.CharField(max_length=40, blank=True)
    profile = models.CharField(max_length=40, blank=True)
    model = models.CharField(max_length=120, blank=True)
    first_seen = models.DateTimeField()
    last_seen = models.DateTimeField()
    looked_at = models.DateTimeField()
    state = models.JSONField(default=dict)
    health = models.CharField(max_length=8, choices=HEALTHS)
    health_since = models.DateTimeField()
    reasons = models.JSONField(default=list)

    class Meta:
        ordering = ["cluster", "node_name", "place", "pk"]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "uuid", "gpu_instance"], name="device_once"),
            models.CheckConstraint(
                condition=Q(last_seen__gte=F("first_seen")), name="device_seen_forward"
            ),
        ]
        indexes = [
            models.Index(fields=["cluster", "node_name", "place"], name="device_place"),
            models.Index(fields=["health"], name="device_health"),
        ]

    def __str__(self) -> str:
        return f"{self.uuid}/{self.gpu_instance}" if self.gpu_instance else self.uuid


class ObservedObject(models.Model):
    """An object as it was last seen; of kinds with history one row for each setting of it.

    `body` has the fields of the kind's struct. `first_at` is when it was first seen so (of
    kinds without history: at all), `changed_at` when it last changed, `gone_at` when it went or
    was set anew.
    """

    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE)
    kind = models.CharField(max_length=63)
    uid = models.CharField(max_length=64)
    namespace = models.CharField(max_length=253, blank=True)
    name = models.CharField(max_length=253)
    first_at = models.DateTimeField()
    changed_at = models.DateTimeField()
    gone_at = models.DateTimeField(null=True, blank=True)
    body = models.JSONField(default=dict)

    class Meta:
        ordering = ["cluster", "kind", "uid", "first_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "kind", "uid", "first_at"], name="observed_object_once"
            ),
            forward("first_at", "gone_at", name="observed_object_forward", instant=True),
        ]
        indexes = [
            models.Index(fields=["cluster", "kind", "gone_at"], name="observed_object_present")
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class ObservedPerson(models.Model):
    """Who is behind an observed object, as a suspended Job that has no pod yet; see `PodPerson`."""

    object = extension_of("clusters.ObservedObject", "behind")
    person = models.CharField(max_length=253, db_index=True)

    class Meta:
        ordering = ["object"]

    def __str__(self) -> str:
        return f"{self.object_id}: {self.person}"
