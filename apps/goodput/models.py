"""What goodput works out once and pages show: failures of nodes by cluster, and losses by day."""

from datetime import datetime, timedelta

from django.db import models

from apps.usage.models import Daily, WorkloadDimensions

RELIABILITY_DAYS = 30


class ReliabilityReport(models.Model):
    """Failures of a cluster's nodes and GPUs over the last weeks, computed once a day.

    `nodes` have the fields of `NodeFailures`, `sizes` those of `SizeInterruptions`, `gpus` those of
    `GpuFailures`, without GPUs that had none (null: not judged); `gpus_judged` counts all whose
    runs are known. It rests on `hours` that were collected of these days, the last of them at
    `facts_at`: it is computed again when either changes. The process that computes holds
    `lease_until`.
    """

    cluster = models.OneToOneField("clusters.Cluster", on_delete=models.CASCADE)
    start = models.DateTimeField(null=True)
    end = models.DateTimeField(null=True)
    computed_at = models.DateTimeField(null=True)
    nodes = models.JSONField(default=list)
    sizes = models.JSONField(default=list)
    gpus = models.JSONField(null=True)
    gpus_judged = models.PositiveIntegerField(default=0, db_default=0)
    hours = models.PositiveIntegerField(null=True)
    facts_at = models.DateTimeField(null=True)
    lease_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["cluster"]

    def __str__(self) -> str:
        return f"{self.cluster_id} to {self.end}"

    @property
    def days_from(self) -> datetime | None:
        """When its days begin; `start` is later where no pod ran in the first of them."""
        return self.end and self.end - timedelta(days=RELIABILITY_DAYS)


class LossDay(Daily, WorkloadDimensions):
    """What a pod lost on a local day for one reason; kept for good, as daily sums of usage are.

    The five amounts are those of `RunAmounts`; `by_hour` lists their sum by hour of the day, since
    prices change within days (null in rows of older versions). `events` counts the failures of that
    day alone: one whose work was of several days has a row in each. `repeated` are those of them
    that another row of the pod has, too, as where it holds GPUs of two models. A row without a pod
    and a reason has what pods of a workload had allocated that no watch saw.
    """

    reason = models.CharField(max_length=120, blank=True)
    # A key without a constraint, and not a relation: pods are deleted long before.
    pod_id = models.BigIntegerField(null=True)
    events = models.PositiveIntegerField(default=0)
    unmeasured = models.BigIntegerField(default=0)
    idle = models.BigIntegerField(default=0)
    underused = models.BigIntegerField(default=0)
    busy = models.BigIntegerField(default=0)
    not_running = models.BigIntegerField(default=0)
    unwatched = models.BigIntegerField(default=0)
    repeated = models.PositiveIntegerField(default=0, db_default=0)
    by_hour = models.JSONField(null=True)

    class Meta(Daily.Meta):
        indexes = [models.Index(fields=["cluster", "day"], name="loss_day_day")]


class StoredLossDay(models.Model):
    """A day of a cluster whose losses are in `LossDay`; it may have had none.

    `basis` says what they rest on, facts and pods: `computed_at` is when they were computed of it,
    or last found to be what it gives.
    """

    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE)
    day = models.DateField()
    computed_at = models.DateTimeField()
    basis = models.CharField(max_length=80, blank=True, default="", db_default="")

    class Meta:
        ordering = ["cluster", "day"]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "day"], name="stored_loss_day_once")
        ]

    def __str__(self) -> str:
        return f"{self.cluster_id} {self.day}"
