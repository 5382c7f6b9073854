"""The pending history: episodes, the causes of each, and sums by day."""

from django.db import models

from apps.clusters.models import forward
from apps.pending.domain.diagnosis import Cause, Counts, Outcome

CAUSES = [(cause.value, cause.value) for cause in Cause]


class Episode(models.Model):
    """One pending item, from its creation to its start, refusal or deletion.

    `kind` is that of Kubernetes without its group (Pod, Job, Workload, PodGroup, ResourceClaim),
    `uid` the object's; of pods that a kubelet turned away, and of refused pods, that of their
    controller. `workload` is its top controller. `gpu_equivalents` is its whole request, `counted`
    the part of it that counts as pending (a gang and its pods count once). The fields from `cause`
    to `findings` are as last seen; `CauseInterval` has every change. `findings` are data
    (`diagnosis.Findings`), put in words when they are read. `since` is when it became pending,
    `bound_at` when (of a pod) it was bound, `until` when it ended.
    """

    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE)
    kind = models.CharField(max_length=63)
    uid = models.CharField(max_length=64)
    name = models.CharField(max_length=253)
    workload = models.ForeignKey("clusters.Workload", on_delete=models.CASCADE)
    tier = models.ForeignKey("clusters.Tier", null=True, on_delete=models.SET_NULL)
    resource = models.CharField(max_length=253, blank=True)
    units = models.FloatField(default=0.0)
    gpu_equivalents = models.FloatField(default=0.0)
    counted = models.FloatField(default=0.0)
    counts = models.CharField(max_length=10, choices=[(c.value, c.value) for c in Counts])
    queue = models.CharField(max_length=253, blank=True)
    priority = models.IntegerField(default=0)
    since = models.DateTimeField()
    bound_at = models.DateTimeField(null=True, blank=True)
    until = models.DateTimeField(null=True, blank=True)
    outcome = models.CharField(
        max_length=10, choices=[(o.value, o.value) for o in Outcome], blank=True
    )
    again = models.BooleanField(default=False)
    cause = models.CharField(max_length=16, choices=CAUSES)
    detail = models.CharField(max_length=120, blank=True)
    message = models.TextField(blank=True)
    findings = models.JSONField(default=dict)

    class Meta:
        ordering = ["since", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "kind", "uid", "since"], name="episode_once"
            ),
            forward("since", "until", name="episode_forward", instant=True),
        ]
        indexes = [
            models.Index(fields=["until", "since"], name="episode_lifetime"),
            models.Index(fields=["workload", "-since"], name="episode_of_workload"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name} since {self.since}"


class CauseInterval(models.Model):
    """A span in which an episode had one cause and counted one amount of GPU-equivalents."""

    episode = models.ForeignKey(Episode, on_delete=models.CASCADE, related_name="intervals")
    start = models.DateTimeField()
    end = models.DateTimeField(null=True, blank=True)
    cause = models.CharField(max_length=16, choices=CAUSES)
    detail = models.CharField(max_length=120, blank=True)
    message = models.TextField(blank=True)
    counts = models.CharField(max_length=10, choices=[(c.value, c.value) for c in Counts])
    counted = models.FloatField(default=0.0)

    class Meta:
        ordering = ["episode", "start"]
        constraints = [
            models.UniqueConstraint(fields=["episode", "start"], name="cause_interval_once"),
            forward("start", "end", name="cause_interval_forward", instant=True),
        ]
        # By end first: of a year of intervals few are open or ended recently, and queries want
        # these.
        indexes = [models.Index(fields=["end", "start"], name="cause_interval_lifetime")]

    def __str__(self) -> str:
        return f"{self.cause} from {self.start}"


class PendingDay(models.Model):
    """Pending sums of one day of the report zone; nano-GPU-hours, by the day's namespaces.

    `waited` and `suppressed` are split by cause; `starting` is bound time before the first start
    (a part of the ledger's not_running). `began` and `ended` count episodes.
    """

    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE)
    day = models.DateField()
    namespace = models.ForeignKey("clusters.Namespace", on_delete=models.CASCADE)
    team = models.ForeignKey("accounts.Team", null=True, on_delete=models.SET_NULL)
    tier = models.ForeignKey("clusters.Tier", null=True, on_delete=models.SET_NULL)
    cause = models.CharField(max_length=16, choices=CAUSES)
    waited = models.BigIntegerField(default=0)
    suppressed = models.BigIntegerField(default=0)
    starting = models.BigIntegerField(default=0)
    began = models.IntegerField(default=0)
    ended = models.IntegerField(default=0)

    class Meta:
        ordering = ["day", "pk"]
        # Not unique: null teams and tiers would count as different in every database.
        indexes = [models.Index(fields=["day", "cluster"], name="wait_day_day")]

    def __str__(self) -> str:
        return f"{self.day} {self.cause}"


class Eviction(models.Model):
    """A pod that lost its GPUs to another, and what it had held of them by then.

    `reclaimed` where a queue took back what was borrowed, else preempted by priority. `by` is
    who took them, as far as that was said.
    """

    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE)
    pod_uid = models.CharField(max_length=64)
    workload = models.ForeignKey("clusters.Workload", on_delete=models.CASCADE)
    tier = models.ForeignKey("clusters.Tier", null=True, on_delete=models.SET_NULL)
    at = models.DateTimeField()
    reclaimed = models.BooleanField(default=False)
    by = models.CharField(max_length=253, blank=True)
    gpu_equivalents = models.FloatField(default=0.0)
    held = models.BigIntegerField(default=0)

    class Meta:
        ordering = ["-at", "pk"]
        constraints = [models.UniqueConstraint(fields=["cluster", "pod_uid"], name="eviction_once")]
        indexes = [models.Index(fields=["at"], name="eviction_at")]

    def __str__(self) -> str:
        return f"{self.pod_uid} at {self.at}"


class RefreshState(models.Model):
    """When the pending work of a cluster was last diagnosed, and whether that worked.

    `at` is the last refresh that worked with a live watch, `error` the failure of the one after it.
    `pods_to`: rows of the ledger up to this id have their episodes; `revised_to`: rows that series
    changed until then have been read again. `rolled_to`: the sums of days are up to date until
    then; an older episode that is written moves it back. The process that refreshes holds
    `lease_until`. `queue_mark` stands for the settings of Kueue's queues with which demand before
    the watch was derived; empty where no series show queues.
    """

    cluster = models.OneToOneField("clusters.Cluster", on_delete=models.CASCADE)
    at = models.DateTimeField(null=True, blank=True)
    waiting = models.IntegerField(default=0)
    error = models.TextField(blank=True)
    rolled_to = models.DateTimeField(null=True, blank=True)
    pods_to = models.BigIntegerField(default=0)
    revised_to = models.DateTimeField(null=True, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    # `db_default`, so that a worker of the version before can still insert a row while it is
    # replaced.
    queue_mark = models.CharField(max_length=32, blank=True, default="", db_default="")

    def __str__(self) -> str:
        return f"{self.cluster_id} at {self.at}"
