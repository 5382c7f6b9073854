"""What goodput works out once and pages show: failures of nodes by cluster."""

from django.db import models


class ReliabilityReport(models.Model):
    """Failures of a cluster's nodes over the last weeks, computed once a day.

    `nodes` have the fields of `NodeFailures`, `sizes` those of `SizeInterruptions`. The process
    that computes holds `lease_until`.
    """

    cluster = models.OneToOneField("clusters.Cluster", on_delete=models.CASCADE)
    start = models.DateTimeField(null=True)
    end = models.DateTimeField(null=True)
    computed_at = models.DateTimeField(null=True)
    nodes = models.JSONField(default=list)
    sizes = models.JSONField(default=list)
    lease_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["cluster"]

    def __str__(self) -> str:
        return f"{self.cluster_id} to {self.end}"
