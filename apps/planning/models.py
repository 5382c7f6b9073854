"""What planning works out once and pages show: the outlook of each tier."""

from django.db import models


class CapacityPlan(models.Model):
    """The outlook of a tier (`domain.capacity_cases.TierOutlook`) by the end of the day `through`.

    `days` are the known days that it rests on: history that is collected later makes it anew.
    """

    tier = models.OneToOneField("clusters.Tier", on_delete=models.CASCADE)
    through = models.DateField()
    days = models.PositiveIntegerField()
    computed_at = models.DateTimeField()
    outlook = models.JSONField()

    class Meta:
        ordering = ["tier__position", "tier__name"]

    def __str__(self) -> str:
        return f"{self.tier_id} through {self.through}"
