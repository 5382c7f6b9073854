"""Fairness by closed hour and by local day, of all clusters together: whole nano-GPU-hours.

Their dimensions are ids without database constraints, as those of facts (`usage.models`): rows are
written by the ten thousand and only by `fairness.services`. Queue-time objectives are rows of the
catalog.
"""

from functools import partial

from django.db import models
from django.db.models import F, Q

from apps.clusters.models import ValidityPeriod, forward
from apps.fairness.domain.hour_state import HourState
from apps.usage.models import Daily, Hourly, dimension

_dimension = partial(dimension, related_name="+")


class TeamFairnessSums(models.Model):
    """A team in a tier; a row is there only where something is not 0.

    `from_pool` and `overdrawn` are parts of `borrowed`; the rest of it is what others lent. `idle`
    is its idle part, as the ledger has it.
    """

    named_by = "team_id"
    tier = _dimension("clusters.Tier")
    team = _dimension("accounts.Team")
    entitlement = models.BigIntegerField(default=0)
    weight = models.BigIntegerField(default=0)
    demand = models.BigIntegerField(default=0)
    fair_share = models.BigIntegerField(default=0)
    allocated = models.BigIntegerField(default=0)
    borrowed = models.BigIntegerField(default=0)
    lent = models.BigIntegerField(default=0)
    denied = models.BigIntegerField(default=0)
    from_pool = models.BigIntegerField(default=0)
    overdrawn = models.BigIntegerField(default=0)
    idle = models.BigIntegerField(default=0)

    class Meta:
        abstract = True


class TierFairnessSums(models.Model):
    """A tier: Σ lent of its teams = Σ borrowed − `from_pool` − `overdrawn`."""

    named_by = "tier_id"
    tier = _dimension("clusters.Tier")
    capacity = models.BigIntegerField(default=0)
    from_pool = models.BigIntegerField(default=0)
    overdrawn = models.BigIntegerField(default=0)
    borrowable = models.BigIntegerField(default=0)

    class Meta:
        abstract = True


class Loan(models.Model):
    """What one team held of another's entitlement; only the largest of a tier are kept."""

    named_by = "lender_id"
    tier = _dimension("clusters.Tier")
    lender = _dimension("accounts.Team")
    borrower = _dimension("accounts.Team")
    amount = models.BigIntegerField()

    class Meta:
        abstract = True


class TeamFairnessHour(Hourly, TeamFairnessSums):
    """Kept for the hourly retention."""

    class Meta(Hourly.Meta):
        constraints = [
            # Tier first: pages ask for one tier over many hours, writers for one hour of all tiers
            # by name.
            models.UniqueConstraint(fields=["tier", "hour", "team"], name="fair_hour_once")
        ]


class TierFairnessHour(Hourly, TierFairnessSums):
    """A tier in an hour; where its state is `missing` all else is 0, and no team has a row.

    `watched`: all clusters of the tier were watched all the hour; else demand is estimated from
    series. Kept for the hourly retention.
    """

    state = models.CharField(max_length=10, choices=[(s.value, s.value) for s in HourState])
    watched = models.BooleanField()

    class Meta(Hourly.Meta):
        constraints = [models.UniqueConstraint(fields=["tier", "hour"], name="fair_tier_hour_once")]


class LoanHour(Hourly, Loan):
    """Kept for the hourly retention."""

    class Meta(Hourly.Meta):
        constraints = [
            models.UniqueConstraint(
                fields=["tier", "hour", "lender", "borrower"], name="fair_loan_once"
            )
        ]


class TeamFairnessDay(Daily, TeamFairnessSums):
    """The sum of a local day's hours; kept for good."""

    class Meta(Daily.Meta):
        constraints = [
            models.UniqueConstraint(fields=["tier", "day", "team"], name="fair_day_once")
        ]


class TierFairnessDay(Daily, TierFairnessSums):
    """The sum of a local day's hours; kept for good.

    `hours` are those that are summed; beside them those `missing`.
    """

    hours = models.PositiveIntegerField()
    hours_missing = models.PositiveIntegerField()
    hours_partial = models.PositiveIntegerField()
    hours_watched = models.PositiveIntegerField()

    class Meta(Daily.Meta):
        constraints = [models.UniqueConstraint(fields=["tier", "day"], name="fair_tier_day_once")]


class LoanDay(Daily, Loan):
    """The sum of a local day's loans; kept for good."""

    class Meta(Daily.Meta):
        constraints = [
            models.UniqueConstraint(
                fields=["tier", "day", "lender", "borrower"], name="fair_loan_day_once"
            )
        ]


class FairnessWindow(models.Model):
    """An hour that was computed, and from what: it is computed again where that has changed.

    Digests of the inputs of an hour: `facts` of the state of the collections that were used,
    `waits` of the pending history, `entitlements` of the entitlements, `watch` of the sources of
    demand by cluster. The last two are empty where they were not noted.
    """

    hour = models.DateTimeField(unique=True)
    facts = models.CharField(max_length=64)
    waits = models.CharField(max_length=64)
    entitlements = models.CharField(max_length=64, blank=True, default="")
    watch = models.CharField(max_length=64, blank=True, default="")
    computed_at = models.DateTimeField()

    class Meta:
        ordering = ["-hour"]

    def __str__(self) -> str:
        return f"{self.hour}"


class RecomputeCursor(models.Model):
    """How far changes were searched for hours to compute; one row.

    All that changed before `at` was seen. `wait_rows` is the newest row of `PendingDay` by then,
    `entitlements` a digest of all entitlements. At `whole_at` everything was compared.
    """

    at = models.DateTimeField()
    whole_at = models.DateTimeField()
    wait_rows = models.BigIntegerField(default=0)
    entitlements = models.CharField(max_length=64, blank=True, default="")

    def __str__(self) -> str:
        return f"{self.at}"


class FairnessDay(models.Model):
    """A local day and its UTC span.

    `rolled`: the sums of the day are those of its hours. `pruned`: its hours are gone. `waits` is a
    digest of the day's pending sums when its hours were last compared with them, once the day is
    over for some time (`services.recompute`). `held` maps team ids to the nano-GPU-hours
    that each held of all tiers together, in hours of which a tier is missing too: fair-share
    factors need ten weeks of these at a time, and a row for each would take longer to read than to
    add.
    """

    day = models.DateField(unique=True)
    start = models.DateTimeField()
    end = models.DateTimeField()
    rolled = models.BooleanField(default=False)
    pruned = models.BooleanField(default=False)
    waits = models.CharField(max_length=64, blank=True, default="")
    held = models.JSONField(default=dict)

    class Meta:
        ordering = ["-day"]
        constraints = [
            models.CheckConstraint(condition=Q(end__gt=F("start")), name="fair_date_forward")
        ]

    def __str__(self) -> str:
        return f"{self.day}"


class TierTeamBlob(models.Model):
    """What all teams of a tier come to in one hour, local day, or week from Monday to Monday.

    The same as the rows of team hours and days, as one value (`domain.team_table`): a page
    over all tiers adds up millions of rows in no other way in time. `start` is where the span
    begins; one of a day or week holds only while all its days are `rolled`. Of hours only those of
    the last days are kept, of days and weeks all.
    """

    HOUR, DAY, WEEK = "hour", "day", "week"

    tier = _dimension("clusters.Tier")
    span = models.CharField(max_length=4, choices=[(s, s) for s in (HOUR, DAY, WEEK)])
    start = models.DateTimeField()
    teams = models.BinaryField()

    class Meta:
        ordering = ["start", "pk"]
        constraints = [
            models.UniqueConstraint(fields=["span", "start", "tier"], name="fair_pack_once")
        ]

    def __str__(self) -> str:
        return f"{self.tier_id} {self.span} {self.start}"


class QueueTimeObjective(ValidityPeriod):
    """In a span 95 % of a tier's work is to start within `p95_seconds`, over the last `days`."""

    tier = models.ForeignKey("clusters.Tier", on_delete=models.CASCADE)
    p95_seconds = models.PositiveIntegerField()
    days = models.PositiveSmallIntegerField()

    class Meta:
        ordering = ["tier", "valid_from"]
        constraints = [
            models.UniqueConstraint(
                fields=["tier", "valid_from"], name="queue_time_objective_once"
            ),
            models.CheckConstraint(
                condition=Q(p95_seconds__gt=0) & Q(days__gt=0),
                name="queue_time_objective_above_zero",
            ),
            forward("valid_from", "valid_to", name="queue_time_objective_forward"),
        ]

    def __str__(self) -> str:
        return f"{self.tier_id}: {self.p95_seconds} s"
