"""What GPU-hours cost, and since when."""

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Coalesce

from apps.clusters.models import Valid
from apps.costs.domain.prices import CAPACITY_TYPES, PriceKind

_CAPACITY_TYPES = [(name, name) for name in (*CAPACITY_TYPES, "unknown")]


class Price(Valid):
    """What one GPU-hour of a model costs, before `discount`; no `cluster` or `tier`: of any.

    `example` marks a price that nobody has observed for. `per_kwh` prices the measured energy, if
    that is billed beside the hardware; `pue` is the site's energy ÷ that of its computers.
    """

    cluster = models.ForeignKey("clusters.Cluster", null=True, blank=True, on_delete=models.CASCADE)
    tier = models.ForeignKey("clusters.Tier", null=True, blank=True, on_delete=models.CASCADE)
    gpu_model = models.CharField(max_length=120)
    capacity_type = models.CharField(max_length=10, choices=_CAPACITY_TYPES)
    per_gpu_hour = models.DecimalField(max_digits=20, decimal_places=8)
    currency = models.CharField(max_length=3)
    discount = models.DecimalField(max_digits=9, decimal_places=8, default=0)
    kind = models.CharField(
        max_length=10, choices=[(k.value, k.value) for k in PriceKind], default=PriceKind.LIST.value
    )
    source = models.CharField(max_length=300, blank=True)
    example = models.BooleanField(default=False)
    per_kwh = models.DecimalField(max_digits=20, decimal_places=8, null=True, blank=True)
    pue = models.DecimalField(max_digits=9, decimal_places=8, default=1)

    class Meta:
        ordering = ["gpu_model", "capacity_type", "valid_from", "pk"]
        constraints = [
            models.UniqueConstraint(
                Coalesce("cluster", 0),
                Coalesce("tier", 0),
                "gpu_model",
                "capacity_type",
                "valid_from",
                name="price_once",
            ),
            models.CheckConstraint(condition=Q(per_gpu_hour__gte=0), name="price_not_negative"),
            models.CheckConstraint(
                condition=Q(discount__gte=0, discount__lte=1), name="price_discount_fraction"
            ),
            models.CheckConstraint(
                condition=Q(valid_to__isnull=True) | Q(valid_to__gt=F("valid_from")),
                name="price_ends_after_start",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.gpu_model} {self.per_gpu_hour} {self.currency}"
