"""What goodput works out once and pages show: failures of nodes by cluster."""

from django.db import models


class ReliabilityReport(models.Model):
    """Failures of a cluster's nodes and GPUs over the last weeks, computed once a day.

    `nodes` have the fields of `NodeFailures`, `sizes` those of `SizeInterruptions`, `gpus` those of
    `GpuFailures`, without GPUs that had none (null: not
    judged); `gpus_judged` counts all whose runs are known. The
    process that computes holds `lease_until`.
    """

    cluster = models.OneToOneField("clusters.Cluster", on_delete=models.CASCADE)
    start = models.DateTimeField(null=True)
    end = models.DateTimeField(null=True)
    computed_at = models.DateTimeField(null=True)
    nodes = models.JSONField(default=list)
    sizes = models.JSONField(default=list)
    gpus = models.JSONField(null=True)
    gpus_judged = models.PositiveIntegerField(default=0, db_default=0)
    lease_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["cluster"]

    def __str__(self) -> str:
        return f"{self.cluster_id} to {self.end}"
