"""What was promised: entitlements and GPU-hour or money budgets of the catalog."""

from django.db import models
from django.db.models import F, Q

from apps.clusters.models import Valid


class Entitlement(Valid):
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
            models.CheckConstraint(
                condition=Q(valid_to__isnull=True) | Q(valid_to__gt=F("valid_from")),
                name="entitlement_ends_after_start",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.team_id} × {self.tier_id}: {self.gpus}"


class Budget(Valid):
    """An allowance per period, in GPU-hours or in money: exactly one of the two."""

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
            models.CheckConstraint(
                condition=Q(valid_to__isnull=True) | Q(valid_to__gt=F("valid_from")),
                name="budget_ends_after_start",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.team_id} per {self.period}"
