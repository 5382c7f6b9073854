"""What planning works out and pages show: outlooks, slots, backtests, forecasts, simulations."""

from django.db import models


class CapacityPlan(models.Model):
    """The outlook of a tier (`domain.capacity_cases.TierOutlook`) by the end of the day `through`.

    `days` are the known days that it rests on: history that is collected later makes it anew.
    """

    tier = models.OneToOneField("clusters.Tier", on_delete=models.CASCADE)
    through = models.DateField()
    days = models.PositiveIntegerField()
    computed_at = models.DateTimeField()
    outlook = models.JSONField()

    class Meta:
        ordering = ["tier__position", "tier__name"]

    def __str__(self) -> str:
        return f"{self.tier_id} through {self.through}"


class DailyFigure(models.Model):
    """What is computed once a day of a cluster's last weeks.

    `error` says why the newest try gave nothing; the figure is then that of the last that did. The
    process that computes holds `lease_until`.
    """

    cluster = models.OneToOneField("clusters.Cluster", on_delete=models.CASCADE)
    start = models.DateTimeField(null=True)
    end = models.DateTimeField(null=True)
    computed_at = models.DateTimeField(null=True)
    tried_at = models.DateTimeField(null=True)
    error = models.TextField(blank=True, default="", db_default="")
    lease_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True
        ordering = ["cluster"]

    def __str__(self) -> str:
        return f"{self.cluster_id} to {self.end}"


class Backtest(DailyFigure):
    """How near a replay of a cluster's last weeks, with nothing changed, came to what happened.

    `rows` have the fields of `BacktestRow`, `left_out` how much could not be replayed by reason,
    `packing` how nodes were chosen.
    """

    works = models.PositiveIntegerField(default=0)
    packing = models.CharField(max_length=16, blank=True, default="", db_default="")
    rows = models.JSONField(default=list)
    left_out = models.JSONField(default=dict)
    assumptions = models.JSONField(default=list)


class QueueForecast(models.Model):
    """Expected queue times of a cluster, computed ahead by replays of what runs and is pending.

    `past` has what replays said of earlier work and how long it took ([tier, median, actual]), as
    of `trained_at`, of days that are known since `trained_from`. `rows` have the fields of
    `ForecastRow`, as of `at`. The process that computes holds `lease_until`.
    """

    cluster = models.OneToOneField("clusters.Cluster", on_delete=models.CASCADE)
    trained_at = models.DateTimeField(null=True)
    trained_from = models.DateTimeField(null=True, blank=True)
    past = models.JSONField(default=list)
    at = models.DateTimeField(null=True)
    rows = models.JSONField(default=list)
    lease_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["cluster"]

    def __str__(self) -> str:
        return f"{self.cluster_id} at {self.at}"


class PolicySimulation(models.Model):
    """Recorded demand replayed without and with a change of policies, as somebody asked for it.

    `change` has the fields of `PolicyChange`, `rows` those of `TeamEffect`. `computed_at` is null
    until a worker replayed it, or `error` says why it cannot be. `requests` are the numbers of the
    quota requests that were made of it at `requested_at`. The process that computes holds
    `lease_until`.
    """

    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE)
    author = models.CharField(max_length=150)
    created_at = models.DateTimeField()
    change = models.JSONField()
    start = models.DateTimeField(null=True)
    end = models.DateTimeField(null=True)
    computed_at = models.DateTimeField(null=True)
    works = models.PositiveIntegerField(default=0)
    rows = models.JSONField(default=list)
    left_out = models.JSONField(default=dict)
    assumptions = models.JSONField(default=list)
    error = models.TextField(blank=True, default="", db_default="")
    requests = models.JSONField(default=list)
    requested_at = models.DateTimeField(null=True, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-pk"]
        indexes = [
            models.Index(fields=["author", "-created_at"], name="policy_simulation_author"),
            models.Index(
                fields=["created_at"],
                condition=models.Q(computed_at__isnull=True),
                name="policy_simulation_due",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.pk} of {self.author}"


class LayoutPlan(DailyFigure):
    """The layout advice of a cluster (`domain.layouts.advice.LayoutAdvice`)."""

    advice = models.JSONField(null=True)


class SlotHour(models.Model):
    """An hour of a cluster of which the free GPUs are stored.

    `collected_at` and `pod_revision` are those of what they were computed from: where either is
    another one, the hour is computed anew.
    """

    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE)
    hour = models.DateTimeField()
    collected_at = models.DateTimeField()
    pod_revision = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["-hour", "cluster"]
        constraints = [models.UniqueConstraint(fields=["cluster", "hour"], name="slot_hour_once")]
        indexes = [models.Index(fields=["hour"], name="slot_hour")]

    def __str__(self) -> str:
        return f"{self.cluster_id} {self.hour}"


class TierSlotHour(models.Model):
    """What was free of a tier at the start of an hour.

    `device` is empty for whole GPUs, else the MIG profile or the resource of GPU replicas;
    `offered` and `free` count these. Of whole GPUs `slots` has, by level, the slots of each size of
    gang that a domain could ever take, `free_nodes` the nodes by their free GPUs, and
    `largest_node` the GPUs of the largest node that takes pods.
    """

    of_hour = models.ForeignKey(SlotHour, on_delete=models.CASCADE)
    tier = models.ForeignKey("clusters.Tier", on_delete=models.CASCADE)
    device = models.CharField(max_length=253, blank=True)
    offered = models.PositiveIntegerField()
    free = models.PositiveIntegerField()
    largest_node = models.PositiveIntegerField(default=0)
    slots = models.JSONField(default=dict)
    free_nodes = models.JSONField(default=dict)

    class Meta:
        ordering = ["of_hour", "tier", "device"]
        constraints = [
            models.UniqueConstraint(
                fields=["of_hour", "tier", "device"], name="tier_slot_hour_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.of_hour_id} {self.tier_id} {self.device}"
