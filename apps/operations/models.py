"""What the doctor found, and how exporters showed themselves before."""

from django.db import models
from django.db.models import Q

from apps.operations.domain.findings import SEVERITIES


class DoctorFinding(models.Model):
    """A finding from when it was first seen until it was seen to be gone.

    `body` is the finding as JSON shows it. `cluster` is null for what concerns the portal itself.
    """

    cluster = models.ForeignKey("clusters.Cluster", null=True, on_delete=models.CASCADE)
    code = models.CharField(max_length=40)
    subject = models.CharField(max_length=600, blank=True)
    severity = models.CharField(max_length=8, choices=[(s.value, s.value) for s in SEVERITIES])
    body = models.JSONField(default=dict)
    first_seen = models.DateTimeField()
    last_seen = models.DateTimeField()
    resolved_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["first_seen", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "code", "subject"],
                condition=Q(resolved_at__isnull=True, cluster__isnull=False),
                name="doctor_finding_open_once",
            ),
            models.UniqueConstraint(
                fields=["code", "subject"],
                condition=Q(resolved_at__isnull=True, cluster__isnull=True),
                name="doctor_finding_portal_once",
            ),
            models.CheckConstraint(
                condition=Q(last_seen__gte=models.F("first_seen")),
                name="doctor_finding_forward",
            ),
        ]
        indexes = [models.Index(fields=["resolved_at"], name="doctor_finding_open")]

    def __str__(self) -> str:
        return f"{self.cluster_id} {self.code} {self.subject}"


class DoctorCheck(models.Model):
    """When a cluster was last examined; `unread` names the sources that did not answer then."""

    cluster = models.OneToOneField("clusters.Cluster", on_delete=models.CASCADE)
    at = models.DateTimeField()
    unread = models.JSONField(default=list)

    def __str__(self) -> str:
        return f"{self.cluster_id} {self.at}"


class SeenExporters(models.Model):
    """How a cluster's exporters showed themselves last, and the newest change of that, in words."""

    cluster = models.OneToOneField("clusters.Cluster", on_delete=models.CASCADE)
    profile = models.JSONField(default=dict)
    changes = models.JSONField(default=list)
    changed_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.cluster_id} changed {self.changed_at}"
