"""The catalog as loaded: clusters, tiers and their rules, claims of namespaces."""

from django.db import models
from django.db.models import F, Q

from apps.clusters.domain.tiers import CapacityType, GpuSharing

CAPACITY_TYPES = [(c.value, c.value) for c in CapacityType]


class Valid(models.Model):
    """A row of the catalog that holds from `valid_from` until, not including, `valid_to`."""

    valid_from = models.DateTimeField()
    valid_to = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True


class Cluster(models.Model):
    """A cluster of the catalog; `prometheus` and `kubernetes` hold its connection as loaded."""

    name = models.CharField(max_length=120, unique=True)
    prometheus = models.JSONField(default=dict)
    kubernetes = models.JSONField(null=True, blank=True)
    active = models.BooleanField(default=True)
    collect_from = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class ReportSettings(models.Model):
    """The report's time zone and currency; one row."""

    time_zone = models.CharField(max_length=64, default="UTC")
    currency = models.CharField(max_length=3, default="USD")

    def __str__(self) -> str:
        return f"{self.time_zone}, {self.currency}"


class Tier(models.Model):
    """A service tier's name and place in the catalog; what it matches is in its rules."""

    name = models.CharField(max_length=120, unique=True)
    position = models.PositiveIntegerField(default=0)
    promise = models.TextField(blank=True)
    active = models.BooleanField(default=True)
    builtin = models.BooleanField(default=False)

    class Meta:
        ordering = ["position", "name"]

    def __str__(self) -> str:
        return self.name


class TierRule(Valid):
    """What a tier matched in a span of time."""

    tier = models.ForeignKey("clusters.Tier", on_delete=models.CASCADE, related_name="rules")
    position = models.PositiveIntegerField()
    sharing = models.CharField(max_length=16, choices=[(s.value, s.value) for s in GpuSharing])
    resources = models.JSONField(default=list)
    device_classes = models.JSONField(default=list)
    node_selector = models.JSONField(default=dict)
    allowed_teams = models.JSONField(default=list)

    class Meta:
        ordering = ["valid_from", "position", "pk"]
        constraints = [
            models.UniqueConstraint(fields=["tier", "valid_from"], name="tier_rule_once"),
            models.CheckConstraint(
                condition=Q(valid_to__isnull=True) | Q(valid_to__gt=F("valid_from")),
                name="tier_rule_ends_after_start",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tier_id} from {self.valid_from}"


class NamespaceClaim(Valid):
    """A pattern of namespace names that a team claimed in a span of time."""

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="claims")
    position = models.PositiveIntegerField(default=0)
    pattern = models.CharField(max_length=253)

    class Meta:
        ordering = ["valid_from", "position", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["team", "pattern", "valid_from"], name="namespace_claim_once"
            ),
            models.CheckConstraint(
                condition=Q(valid_to__isnull=True) | Q(valid_to__gt=F("valid_from")),
                name="namespace_claim_ends_after_start",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.team_id}: {self.pattern}"
