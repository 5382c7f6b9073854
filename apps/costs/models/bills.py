"""Tables of bills: what a provider invoiced for a month, by SKU and day, and what SKUs stand for.

Amounts are units of 1e-8 of the bill's currency, and may be negative: credits and refunds.
"""

from django.db import models
from django.db.models import Q

from apps.clusters.domain.tiers import CapacityType
from apps.clusters.models import forward
from apps.costs.domain.bills.charges import ChargeKind


class Bill(models.Model):
    """A bill of a month that was imported; `ended_at` null: it is the one in force.

    A later import of the same month and provider ends it, as deleting does: its amounts go, this
    row stays as history. `cost_column` is the column of the file whose amounts these are, and
    `exchange_rates` (currency → decimal number as text) those by which they were converted.
    """

    month = models.DateField()
    provider = models.CharField(max_length=80, blank=True)
    file_name = models.CharField(max_length=250)
    file_format = models.CharField(max_length=16)
    cost_column = models.CharField(max_length=16)
    sha256 = models.CharField(max_length=64)
    size = models.PositiveBigIntegerField()
    currency = models.CharField(max_length=3)
    exchange_rates = models.JSONField(null=True, blank=True)
    time_zone = models.CharField(max_length=64)
    line_count = models.PositiveBigIntegerField()
    total = models.BigIntegerField()
    imported_at = models.DateTimeField()
    imported_by = models.CharField(max_length=150)
    ended_at = models.DateTimeField(null=True, blank=True)
    ended_by = models.CharField(max_length=150, blank=True)
    replaced_by = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL)

    class Meta:
        ordering = ["-month", "provider", "-imported_at", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["month", "provider"], condition=Q(ended_at__isnull=True), name="bill_once"
            ),
            forward("imported_at", "ended_at", name="bill_ends_after_import", instant=True),
        ]

    def __str__(self) -> str:
        return f"{self.month:%Y-%m} {self.provider}".strip()


class BillSku(models.Model):
    """A SKU of a bill, with how the bill describes it first."""

    bill = models.ForeignKey("costs.Bill", on_delete=models.CASCADE)
    sku = models.CharField(max_length=300)
    description = models.CharField(max_length=300, blank=True)

    class Meta:
        ordering = ["bill", "sku"]
        constraints = [models.UniqueConstraint(fields=["bill", "sku"], name="bill_sku_once")]

    def __str__(self) -> str:
        return self.sku


class BillAmount(models.Model):
    """What a SKU was billed with on a local day, by kind of charge."""

    sku = models.ForeignKey("costs.BillSku", on_delete=models.CASCADE)
    day = models.DateField()
    kind = models.CharField(max_length=10, choices=[(k.value, k.value) for k in ChargeKind])
    amount = models.BigIntegerField()

    class Meta:
        ordering = ["day", "pk"]
        indexes = [models.Index(fields=["day"], name="bill_amount_day")]
        constraints = [
            models.UniqueConstraint(fields=["sku", "day", "kind"], name="bill_amount_once")
        ]

    def __str__(self) -> str:
        return f"{self.sku_id} {self.day} {self.kind}"


class SkuMapping(models.Model):
    """What a SKU of any bill stands for; no model: it is no GPU, no capacity type: of any."""

    sku = models.CharField(max_length=300, unique=True)
    gpu_model = models.ForeignKey("clusters.GpuModel", null=True, on_delete=models.CASCADE)
    capacity_type = models.CharField(
        max_length=10, blank=True, choices=[(t.value, t.value) for t in CapacityType]
    )
    updated_at = models.DateTimeField()
    updated_by = models.CharField(max_length=150)

    class Meta:
        ordering = ["sku"]

    def __str__(self) -> str:
        return self.sku
