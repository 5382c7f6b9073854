"""GPUs and MIG instances as their exporters last showed them."""

from django.db import models
from django.db.models import F, Q

from apps.clusters.domain.devices.state import Health

HEALTHS = [(h.value, h.value) for h in Health]


class Device(models.Model):
    """A card, or a MIG instance of one (`uuid` is its card's then), and its newest state.

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
