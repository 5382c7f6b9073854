"""Prices of the catalog."""

from django.db import models
from django.db.models import F, Q

from apps.clusters.models import CAPACITY_TYPES, Valid


class Price(Valid):
    """What one GPU-hour of a model costs; `cluster` empty: on every cluster."""

    cluster = models.ForeignKey("clusters.Cluster", null=True, blank=True, on_delete=models.CASCADE)
    gpu_model = models.CharField(max_length=120)
    capacity_type = models.CharField(max_length=10, choices=CAPACITY_TYPES)
    per_gpu_hour = models.DecimalField(max_digits=20, decimal_places=8)
    currency = models.CharField(max_length=3)

    class Meta:
        ordering = ["gpu_model", "capacity_type", "valid_from", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "gpu_model", "capacity_type", "valid_from"],
                condition=Q(cluster__isnull=False),
                name="price_once_on_cluster",
            ),
            models.UniqueConstraint(
                fields=["gpu_model", "capacity_type", "valid_from"],
                condition=Q(cluster__isnull=True),
                name="price_once_everywhere",
            ),
            models.CheckConstraint(condition=Q(per_gpu_hour__gte=0), name="price_not_negative"),
            models.CheckConstraint(
                condition=Q(valid_to__isnull=True) | Q(valid_to__gt=F("valid_from")),
                name="price_ends_after_start",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.gpu_model} {self.per_gpu_hour} {self.currency}"
