"""What the doctor found, how exporters showed themselves, and proposals to change the catalog."""

from django.db import models
from django.db.models import Q

from apps.operations.domain.findings import SEVERITIES
from apps.operations.domain.proposals import ProposalKind, ProposalState

BEAT_LEASE = "beat"
"""The lease of the beat that sends."""


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
                # NULL equals no NULL in SQL: findings without a cluster need a constraint of their
                # own.
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


class Heartbeat(models.Model):
    """That a task which beat sent at `sent_at` was carried out at `at`; one row."""

    sent_at = models.DateTimeField()
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.sent_at} at {self.at}"


class CatalogProposal(models.Model):
    """A proposal to change what the catalog says of a team.

    `before` and `after` are as `domain.proposals.value_in` gives them, `before` as it was when the
    proposal was written. `in_file` is set once a catalog was loaded that agrees, or that undid it
    on purpose: until then the file in somebody's repository says something else.
    """

    team = models.ForeignKey("accounts.Team", on_delete=models.PROTECT)
    kind = models.CharField(max_length=12, choices=[(k.value, k.value) for k in ProposalKind])
    subject = models.CharField(max_length=120, blank=True)
    before = models.JSONField(default=dict)
    after = models.JSONField(default=dict)
    reason = models.TextField()
    state = models.CharField(
        max_length=9,
        choices=[(s.value, s.value) for s in ProposalState],
        default=ProposalState.SUBMITTED.value,
    )
    author = models.CharField(max_length=150)
    created_at = models.DateTimeField()
    decided_by = models.CharField(max_length=150, blank=True)
    decided_at = models.DateTimeField(null=True, blank=True)
    decision = models.TextField(blank=True)
    in_file = models.BooleanField(default=False)

    class Meta:
        ordering = ["-created_at", "-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["team", "kind", "subject"],
                condition=Q(state=ProposalState.SUBMITTED.value),
                name="catalog_proposal_open_once",
            ),
            models.CheckConstraint(
                condition=Q(state=ProposalState.SUBMITTED.value) ^ Q(decided_at__isnull=False),
                name="catalog_proposal_decided",
            ),
        ]
        indexes = [models.Index(fields=["state", "-created_at"], name="catalog_proposal_state")]

    def __str__(self) -> str:
        return f"{self.pk}: {self.kind} {self.subject} of {self.team_id}"


class ScheduledRun(models.Model):
    """When beat last sent a task of its schedule."""

    name = models.CharField(max_length=100, unique=True)
    last_run_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.name} at {self.last_run_at}"
