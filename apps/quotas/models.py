"""Entitlements, budgets, hourly usage of quotas, and budget alerts."""

from django.db import models
from django.db.models import Q

from apps.clusters.models import ValidityPeriod, forward
from apps.quotas.domain.keys import QuotaSource

SOURCES = [(s.value, s.value) for s in QuotaSource]


class Entitlement(ValidityPeriod):
    """GPU-equivalents of a tier that a team may count on; `weight` steers fair sharing."""

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE)
    tier = models.ForeignKey("clusters.Tier", on_delete=models.CASCADE)
    gpus = models.FloatField()
    weight = models.FloatField()

    class Meta:
        ordering = ["team", "tier", "valid_from"]
        constraints = [
            models.UniqueConstraint(fields=["team", "tier", "valid_from"], name="entitlement_once"),
            models.CheckConstraint(condition=Q(gpus__gte=0), name="entitlement_not_negative"),
            forward("valid_from", "valid_to", name="entitlement_ends_after_start"),
        ]

    def __str__(self) -> str:
        return f"{self.team_id} × {self.tier_id}: {self.gpus}"


class Budget(ValidityPeriod):
    """A budget per period, in GPU-hours or in money: exactly one of the two."""

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE)
    period = models.CharField(max_length=8)
    gpu_hours = models.FloatField(null=True, blank=True)
    money = models.DecimalField(max_digits=20, decimal_places=8, null=True, blank=True)
    currency = models.CharField(max_length=3, blank=True)

    class Meta:
        ordering = ["team", "period", "valid_from", "pk"]
        constraints = [
            models.CheckConstraint(
                condition=Q(gpu_hours__isnull=True) ^ Q(money__isnull=True),
                name="budget_hours_or_money",
            ),
            models.UniqueConstraint(
                fields=["team", "period", "valid_from"],
                condition=Q(money__isnull=True),
                name="budget_of_hours_once",
            ),
            models.UniqueConstraint(
                fields=["team", "period", "currency", "valid_from"],
                condition=Q(money__isnull=False),
                name="budget_of_money_once",
            ),
            forward("valid_from", "valid_to", name="budget_ends_after_start"),
        ]

    def __str__(self) -> str:
        return f"{self.team_id} per {self.period}"


class QuotaKey(models.Model):
    """One key of a quota, known by names: a quota made again under its name is the same one.

    `key` is that of a ResourceQuota's `spec.hard`, of a ClusterQueue `flavor/resource`, of a
    Volcano Queue `capability/resource` or `deserved/resource`. Queues have no namespace.
    """

    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE)
    source = models.CharField(max_length=16, choices=SOURCES)
    namespace = models.CharField(max_length=253, blank=True)
    name = models.CharField(max_length=253)
    key = models.CharField(max_length=530)

    class Meta:
        ordering = ["cluster", "source", "namespace", "name", "key"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "source", "namespace", "name", "key"], name="quota_key_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.key} of {self.source} {self.namespace}/{self.name}"


class QuotaKeyHour(models.Model):
    """Usage of a quota key in one hour, in quota-hours; null where that is not known.

    `seconds` is how long the quota was there in the hour: amounts × 3600 ÷ seconds are means of
    that time. `used` counts bound and pending pods, `held` the bound alone; `suppressed` was
    refused before a pod existed, beside `used`. `team` is that of the namespace in the hour; one
    that moved within it has a row for each team, the earlier first. Null of a queue that several
    teams use. Written by `quotas.services` only.
    """

    # Rows are many: no constraint, and no index of its own, as the unique one begins with the key.
    key = models.ForeignKey(
        QuotaKey, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False
    )
    cluster = models.ForeignKey(
        "clusters.Cluster", on_delete=models.DO_NOTHING, db_constraint=False, db_index=False
    )
    team = models.ForeignKey(
        "accounts.Team", null=True, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False
    )
    hour = models.DateTimeField()
    seconds = models.FloatField()
    hard = models.FloatField()
    used = models.FloatField(null=True)
    held = models.FloatField(null=True)
    pending = models.FloatField(null=True)
    suppressed = models.FloatField(null=True)

    class Meta:
        ordering = ["hour", "key"]
        constraints = [
            models.UniqueConstraint(fields=["key", "hour", "team"], name="quota_key_hour_of_team"),
            models.UniqueConstraint(
                # NULL equals no NULL in SQL: the constraint above would let a queue of several
                # have two rows.
                fields=["key", "hour"],
                condition=Q(team__isnull=True),
                name="quota_key_hour_of_several",
            ),
        ]
        indexes = [models.Index(fields=["cluster", "hour"], name="quota_key_hour_hour")]

    def __str__(self) -> str:
        return f"{self.key_id} {self.hour}"


class QuotaHour(models.Model):
    """That the quotas of a cluster's hour were summed, and from what.

    `collected_at` is that of the hour's collection, `pod_revision` the number of what was known of
    its pods (`clusters.PodRevision`), which other hours may change.
    """

    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE)
    hour = models.DateTimeField()
    collected_at = models.DateTimeField()
    pod_revision = models.PositiveIntegerField(default=0, db_default=0)
    keys = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["cluster", "hour"]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "hour"], name="quota_hour_once"),
        ]

    def __str__(self) -> str:
        return f"{self.cluster_id} {self.hour}"


class BudgetAlert(models.Model):
    """A budget of which a share is used, or that will be used up too soon.

    Once for each team, unit and period, kind and threshold. `unit` is `gpu_hours` or a currency;
    `used` and `allowance` are as they were then, `exhausted_at` as projected at that time.
    """

    USED, PROJECTED = "used", "projected"

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE)
    unit = models.CharField(max_length=9)
    period = models.CharField(max_length=8)
    period_start = models.DateTimeField()
    period_end = models.DateTimeField()
    kind = models.CharField(max_length=9, choices=[(USED, USED), (PROJECTED, PROJECTED)])
    threshold = models.FloatField()
    at = models.DateTimeField()
    used = models.FloatField()
    allowance = models.FloatField()
    exhausted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-at", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["team", "unit", "period", "period_start", "kind", "threshold"],
                name="budget_alert_once",
            )
        ]
        indexes = [models.Index(fields=["-at"], name="budget_alert_at")]

    def __str__(self) -> str:
        return f"{self.team_id} {self.kind} {self.threshold} of {self.period_start}"
