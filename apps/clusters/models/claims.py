"""ResourceClaims: who was given which devices, and when."""

from django.db import models
from django.db.models import F, Q


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
            models.CheckConstraint(
                condition=Q(released_at__isnull=True) | Q(released_at__gte=F("allocated_at")),
                name="claim_interval_forward",
            ),
        ]
        indexes = [models.Index(fields=["cluster", "released_at"], name="claim_interval_end")]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} from {self.allocated_at}"
