"""What hours and days cost.

Amounts of GPU are whole nano-GPU-hours, money whole units of 1e-8 of the row's currency
(docs/adr/0001-amounts-are-integers.md). Dimensions are ids without constraints, as those of usage's
facts are: only `costs.services` writes them, by the ten thousand.
"""

from django.db import models

from apps.usage.models import OfTier, OfWorkload


class Costed(models.Model):
    """What was held and what it cost, by cause, at the price of its hour, which is kept.

    `price` and `list_price` are units of 1e-8 per GPU-hour, after and before the discount. Where
    the price book has none they are null, `currency` is empty and all costs are 0: unpriced.
    """

    price = models.BigIntegerField(null=True)
    list_price = models.BigIntegerField(null=True)
    currency = models.CharField(max_length=3, blank=True)
    busy = models.BigIntegerField(default=0)
    unmeasured = models.BigIntegerField(default=0)
    underused = models.BigIntegerField(default=0)
    idle = models.BigIntegerField(default=0)
    not_running = models.BigIntegerField(default=0)
    cost_busy = models.BigIntegerField(default=0)
    cost_unmeasured = models.BigIntegerField(default=0)
    cost_underused = models.BigIntegerField(default=0)
    cost_idle = models.BigIntegerField(default=0)
    cost_not_running = models.BigIntegerField(default=0)
    energy_mwh = models.BigIntegerField(default=0)
    cost_energy = models.BigIntegerField(default=0)

    class Meta:
        abstract = True


class Shared(models.Model):
    """A team's share of its pool's unallocated capacity by each policy that shares it.

    By entitlement, by what it held (use on the allocated basis), and by what it used.
    """

    by_entitlement = models.BigIntegerField(default=0)
    by_held = models.BigIntegerField(default=0)
    by_used = models.BigIntegerField(default=0)
    cost_by_entitlement = models.BigIntegerField(default=0)
    cost_by_held = models.BigIntegerField(default=0)
    cost_by_used = models.BigIntegerField(default=0)

    class Meta:
        abstract = True


class Free(models.Model):
    """What nobody held; `burst` is what shared cards did beyond what their tenants held.

    `free_energy_mwh` is the measured energy of cards that no pod explains.
    """

    unallocated = models.BigIntegerField(default=0)
    unhealthy = models.BigIntegerField(default=0)
    cost_unallocated = models.BigIntegerField(default=0)
    cost_unhealthy = models.BigIntegerField(default=0)
    burst = models.BigIntegerField(default=0)
    free_energy_mwh = models.BigIntegerField(default=0)
    cost_free_energy = models.BigIntegerField(default=0)

    class Meta:
        abstract = True


class OfTeam(OfTier):
    team = models.ForeignKey(
        "accounts.Team", on_delete=models.DO_NOTHING, db_constraint=False, db_index=False
    )

    class Meta:
        abstract = True


class WorkloadCostHour(OfWorkload, Costed):
    """One workload of a team on one pool in one hour; kept for the hourly retention."""

    hour = models.DateTimeField()

    class Meta:
        ordering = ["hour", "pk"]
        indexes = [models.Index(fields=["cluster", "hour"], name="workload_cost_hour")]

    def __str__(self) -> str:
        return f"{self.workload_id} {self.hour}"


class WorkloadCostDay(OfWorkload, Costed):
    """The sum of its hours of one price; kept for good, as all that follow."""

    day = models.DateField()

    class Meta:
        ordering = ["day", "pk"]
        indexes = [
            models.Index(fields=["cluster", "day"], name="workload_cost_day"),
            models.Index(fields=["team", "day"], name="workload_cost_team"),
        ]

    def __str__(self) -> str:
        return f"{self.workload_id} {self.day}"


class TeamCostHour(OfTeam, Costed, Shared):
    hour = models.DateTimeField()

    class Meta:
        ordering = ["hour", "pk"]
        indexes = [models.Index(fields=["cluster", "hour"], name="team_cost_hour")]

    def __str__(self) -> str:
        return f"{self.team_id} {self.hour}"


class TeamCostDay(OfTeam, Costed, Shared):
    day = models.DateField()

    class Meta:
        ordering = ["day", "pk"]
        indexes = [models.Index(fields=["cluster", "day"], name="team_cost_day")]

    def __str__(self) -> str:
        return f"{self.team_id} {self.day}"


class PoolCostHour(OfTier, Costed, Free):
    """The whole capacity of a pool (cluster × tier × model × capacity type) in one hour."""

    hour = models.DateTimeField()

    class Meta:
        ordering = ["hour", "pk"]
        indexes = [models.Index(fields=["cluster", "hour"], name="pool_cost_hour")]

    def __str__(self) -> str:
        return f"{self.tier_id} {self.hour}"


class PoolCostDay(OfTier, Costed, Free):
    day = models.DateField()

    class Meta:
        ordering = ["day", "pk"]
        indexes = [models.Index(fields=["day", "cluster"], name="pool_cost_day")]

    def __str__(self) -> str:
        return f"{self.tier_id} {self.day}"


class PricedHour(models.Model):
    """An hour of a cluster whose facts were priced.

    `facts_at` is when these were collected; `rates` a digest of the prices and entitlements that
    held in the hour. An hour is priced again when either has changed.
    """

    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE)
    hour = models.DateTimeField()
    facts_at = models.DateTimeField()
    rates = models.CharField(max_length=16, blank=True)

    class Meta:
        ordering = ["cluster", "hour"]
        constraints = [models.UniqueConstraint(fields=["cluster", "hour"], name="priced_hour_once")]

    def __str__(self) -> str:
        return f"{self.cluster_id} {self.hour}"
