"""Months that are closed, and what was booked of them later."""

from django.db import models
from django.db.models import F, Q

from apps.costs.domain.costing import Basis, Cause
from apps.costs.domain.unallocated import Policy


class ClosedPeriod(models.Model):
    """A month of the report zone that was closed; `reopened_at` null: it still is.

    `files` maps each format to the SHA-256 of its file; one that could not be written (a workbook
    of too many rows) is left out. `forced` is the reason why it was closed with gaps.
    `cost_centers` (team → center) are those of then, so that its files stay what they are.
    """

    month = models.DateField()
    start = models.DateTimeField()
    end = models.DateTimeField()
    time_zone = models.CharField(max_length=64)
    currency = models.CharField(max_length=3)
    basis = models.CharField(max_length=10, choices=[(b.value, b.value) for b in Basis])
    policy = models.CharField(max_length=12, choices=[(p.value, p.value) for p in Policy])
    price_book = models.CharField(max_length=12)
    row_count = models.PositiveBigIntegerField(default=0)
    rows_sha256 = models.CharField(max_length=64)
    files = models.JSONField(default=dict)
    cost_centers = models.JSONField(default=dict)
    forced = models.TextField(blank=True)
    closed_at = models.DateTimeField()
    closed_by = models.CharField(max_length=150)
    reopened_at = models.DateTimeField(null=True, blank=True)
    reopened_by = models.CharField(max_length=150, blank=True)
    reopen_reason = models.TextField(blank=True)

    class Meta:
        ordering = ["-month", "-closed_at", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["month"], condition=Q(reopened_at__isnull=True), name="period_closed_once"
            ),
            models.CheckConstraint(condition=Q(end__gt=F("start")), name="period_forward"),
            models.CheckConstraint(
                condition=Q(reopened_at__isnull=True) | ~Q(reopen_reason=""),
                name="period_reopened_for_a_reason",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.month:%Y-%m}"


class Booked(models.Model):
    """A line of a closed month: who pays for what. No team: the platform; no workload: nobody."""

    day = models.DateField()
    cluster = models.ForeignKey(
        "clusters.Cluster", on_delete=models.DO_NOTHING, db_constraint=False, db_index=False
    )
    tier = models.ForeignKey(
        "clusters.Tier", on_delete=models.DO_NOTHING, db_constraint=False, db_index=False
    )
    gpu_model = models.ForeignKey(
        "clusters.GpuModel", on_delete=models.DO_NOTHING, db_constraint=False, db_index=False
    )
    capacity_type = models.CharField(max_length=10)
    team = models.ForeignKey(
        "accounts.Team", null=True, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False
    )
    namespace = models.ForeignKey(
        "clusters.Namespace",
        null=True,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
    )
    workload = models.ForeignKey(
        "clusters.Workload",
        null=True,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
    )
    cause = models.CharField(max_length=12, choices=[(c.value, c.value) for c in Cause])
    currency = models.CharField(max_length=3, blank=True)
    gpu_hours = models.BigIntegerField()
    cost = models.BigIntegerField()
    unpriced = models.BigIntegerField()

    class Meta:
        abstract = True


class ClosedAmount(Booked):
    """What was frozen; kept for ever, and only written when its month is closed."""

    period = models.ForeignKey("costs.ClosedPeriod", on_delete=models.PROTECT)

    class Meta:
        ordering = ["period", "day", "pk"]
        indexes = [models.Index(fields=["period", "cluster", "day"], name="closed_amount_day")]

    def __str__(self) -> str:
        return f"{self.period_id} {self.day} {self.cause}"


class Adjustment(Booked):
    """A difference to a closed month, booked on a day of the month that was open then."""

    period = models.ForeignKey("costs.ClosedPeriod", on_delete=models.PROTECT)
    booked_on = models.DateField()
    booked_at = models.DateTimeField()

    class Meta:
        ordering = ["booked_on", "pk"]
        indexes = [
            models.Index(fields=["booked_on"], name="adjustment_booked"),
            models.Index(fields=["period", "cluster", "day"], name="adjustment_day"),
        ]

    def __str__(self) -> str:
        return f"{self.period_id} {self.day} booked {self.booked_on}"
