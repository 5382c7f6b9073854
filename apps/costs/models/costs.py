"""Tables of costs: prices, costs of hours and days, closed months, exports, recommendations.

Amounts of GPU are whole nano-GPU-hours, money whole units of 1e-8 of the row's currency
(docs/adr/0001-amounts-are-integers.md). Dimensions of facts are ids without constraints, as those
of usage's facts are: only `costs.services` writes them, by the ten thousand.
"""

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Coalesce

from apps.clusters.models import ValidityPeriod, forward
from apps.costs.domain.costing import Basis, Cause, Policy
from apps.costs.domain.exports import ExportState, ExportSubject, MailState
from apps.costs.domain.files import FileFormat
from apps.costs.domain.prices import CAPACITY_TYPES, PriceKind
from apps.costs.domain.recommendations.recommendation import (
    Confidence,
    FollowUpOutcome,
    RecommendationKind,
    RecommendationState,
    ReplayGap,
)
from apps.usage.models import (
    Daily,
    Hourly,
    TeamDimensions,
    TierDimensions,
    WorkloadDimensions,
    dimension,
)

_CAPACITY_TYPES = [(name, name) for name in (*CAPACITY_TYPES, "unknown")]


class Price(ValidityPeriod):
    """What one GPU-hour of a model costs, before `discount`; no `cluster` or `tier`: of any.

    `example` marks a price that was never confirmed, `confirmed_by` names who confirmed another.
    `per_kwh` prices the measured energy, if that is billed beside the hardware; `pue` is the site's
    energy ÷ that of its computers.
    """

    cluster = models.ForeignKey("clusters.Cluster", null=True, blank=True, on_delete=models.CASCADE)
    tier = models.ForeignKey("clusters.Tier", null=True, blank=True, on_delete=models.CASCADE)
    gpu_model = models.CharField(max_length=120)
    capacity_type = models.CharField(max_length=10, choices=_CAPACITY_TYPES)
    per_gpu_hour = models.DecimalField(max_digits=20, decimal_places=8)
    currency = models.CharField(max_length=3)
    discount = models.DecimalField(max_digits=9, decimal_places=8, default=0)
    kind = models.CharField(
        max_length=10, choices=[(k.value, k.value) for k in PriceKind], default=PriceKind.LIST.value
    )
    source = models.CharField(max_length=300, blank=True)
    example = models.BooleanField(default=False)
    confirmed_by = models.CharField(max_length=120, blank=True, default="", db_default="")
    confirmed_on = models.DateField(null=True, blank=True)
    per_kwh = models.DecimalField(max_digits=20, decimal_places=8, null=True, blank=True)
    pue = models.DecimalField(max_digits=9, decimal_places=8, default=1)

    class Meta:
        ordering = ["gpu_model", "capacity_type", "valid_from", "pk"]
        constraints = [
            models.UniqueConstraint(
                Coalesce("cluster", 0),
                Coalesce("tier", 0),
                "gpu_model",
                "capacity_type",
                "valid_from",
                name="price_once",
            ),
            models.CheckConstraint(condition=Q(per_gpu_hour__gte=0), name="price_not_negative"),
            models.CheckConstraint(
                condition=Q(discount__gte=0, discount__lte=1), name="price_discount_fraction"
            ),
            forward("valid_from", "valid_to", name="price_ends_after_start"),
        ]

    def __str__(self) -> str:
        return f"{self.gpu_model} {self.per_gpu_hour} {self.currency}"


class EnergyFactor(ValidityPeriod):
    """What a cluster's site adds to the measured energy of its GPUs, and the carbon of a kWh.

    `carbon_g_per_kwh` null: `carbon_hours` has it by the hour (`carbon.CarbonFile`), read from
    `carbon_file` when the catalog was loaded; `carbon_covers` says which hours these are.
    """

    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE)
    pue = models.DecimalField(max_digits=20, decimal_places=8, default=1)
    carbon_g_per_kwh = models.DecimalField(max_digits=20, decimal_places=8, null=True, blank=True)
    carbon_file = models.CharField(max_length=1000, blank=True)
    carbon_covers = models.CharField(max_length=120, blank=True)
    carbon_hours = models.JSONField(default=dict, blank=True)

    class Meta:
        ordering = ["cluster", "valid_from", "pk"]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "valid_from"], name="energy_factor_once"),
            models.CheckConstraint(condition=Q(pue__gte=1), name="energy_factor_pue"),
            forward("valid_from", "valid_to", name="energy_factor_ends_after_start"),
        ]

    def __str__(self) -> str:
        return f"{self.cluster_id} {self.carbon_g_per_kwh}"


class CostAmounts(models.Model):
    """What was held and what it cost, by cause, at the price of its hour, which is kept.

    `price` and `list_price` are units of 1e-8 per GPU-hour, after and before the discount. Where
    the price book has none they are null, `currency` is empty and all costs are 0: unpriced.
    `carbon_mwh` is the part of `energy_mwh` whose hour has a factor, `carbon_ug` its carbon.
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
    carbon_mwh = models.BigIntegerField(default=0, db_default=0)
    carbon_ug = models.BigIntegerField(default=0, db_default=0)

    class Meta:
        abstract = True


class UnallocatedShares(models.Model):
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


class UnallocatedAmounts(models.Model):
    """Unallocated capacity; `burst` is what shared GPUs did beyond what their tenants held.

    `free_energy_mwh` is the measured energy of GPUs that no pod explains.
    """

    unallocated = models.BigIntegerField(default=0)
    unhealthy = models.BigIntegerField(default=0)
    cost_unallocated = models.BigIntegerField(default=0)
    cost_unhealthy = models.BigIntegerField(default=0)
    planned_outage = models.BigIntegerField(default=0, db_default=0)
    cost_planned_outage = models.BigIntegerField(default=0, db_default=0)
    burst = models.BigIntegerField(default=0)
    free_energy_mwh = models.BigIntegerField(default=0)
    cost_free_energy = models.BigIntegerField(default=0)
    free_carbon_mwh = models.BigIntegerField(default=0, db_default=0)
    free_carbon_ug = models.BigIntegerField(default=0, db_default=0)

    class Meta:
        abstract = True


class WorkloadCostHour(Hourly, WorkloadDimensions, CostAmounts):
    """One workload of a team on one pool in one hour; kept for the hourly retention."""

    class Meta(Hourly.Meta):
        indexes = [models.Index(fields=["cluster", "hour"], name="workload_cost_hour")]


class WorkloadCostDay(Daily, WorkloadDimensions, CostAmounts):
    """The sum of its hours of one price; kept for good, as all that follow."""

    class Meta(Daily.Meta):
        indexes = [
            models.Index(fields=["cluster", "day"], name="workload_cost_day"),
            models.Index(fields=["team", "day"], name="workload_cost_team"),
        ]


class TeamCostHour(Hourly, TeamDimensions, CostAmounts, UnallocatedShares):
    class Meta(Hourly.Meta):
        indexes = [models.Index(fields=["cluster", "hour"], name="team_cost_hour")]


class TeamCostDay(Daily, TeamDimensions, CostAmounts, UnallocatedShares):
    class Meta(Daily.Meta):
        indexes = [models.Index(fields=["cluster", "day"], name="team_cost_day")]


class PoolCostHour(Hourly, TierDimensions, CostAmounts, UnallocatedAmounts):
    """The whole capacity of a pool (cluster × tier × model × capacity type) in one hour."""

    class Meta(Hourly.Meta):
        indexes = [models.Index(fields=["cluster", "hour"], name="pool_cost_hour")]


class PoolCostDay(Daily, TierDimensions, CostAmounts, UnallocatedAmounts):
    class Meta(Daily.Meta):
        indexes = [models.Index(fields=["day", "cluster"], name="pool_cost_day")]


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


class ClosedPeriod(models.Model):
    """A month of the report zone that was closed; `reopened_at` null: it still is.

    `files` maps each format to the SHA-256 of its file; one that could not be written (a workbook
    of too many rows) is left out. `forced` is the reason why it was closed with gaps.
    `cost_centers` (team → center) are those of then, so that its files stay what they are; so
    does `energy_in_files`, whether those without FOCUS have the columns of energy and carbon, and
    `unbilled_in_files`, whether they have lines of energy without a tariff.
    `exchange_rates` (currency → decimal number as text) are those of the month when it was closed;
    null where no catalog had any.
    """

    month = models.DateField()
    start = models.DateTimeField()
    end = models.DateTimeField()
    time_zone = models.CharField(max_length=64)
    currency = models.CharField(max_length=3)
    basis = models.CharField(max_length=10, choices=[(b.value, b.value) for b in Basis])
    policy = models.CharField(max_length=12, choices=[(p.value, p.value) for p in Policy])
    price_book = models.CharField(max_length=12)
    row_count = models.PositiveBigIntegerField(default=0)
    rows_sha256 = models.CharField(max_length=64)
    files = models.JSONField(default=dict)
    cost_centers = models.JSONField(default=dict)
    energy_in_files = models.BooleanField(default=True, db_default=False)
    exchange_rates = models.JSONField(null=True, blank=True)
    unbilled_in_files = models.BooleanField(default=True, db_default=False)
    forced = models.TextField(blank=True)
    closed_at = models.DateTimeField()
    closed_by = models.CharField(max_length=150)
    reopened_at = models.DateTimeField(null=True, blank=True)
    reopened_by = models.CharField(max_length=150, blank=True)
    reopen_reason = models.TextField(blank=True)

    class Meta:
        ordering = ["-month", "-closed_at", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["month"], condition=Q(reopened_at__isnull=True), name="period_closed_once"
            ),
            models.CheckConstraint(condition=Q(end__gt=F("start")), name="period_forward"),
            models.CheckConstraint(
                condition=Q(reopened_at__isnull=True) | ~Q(reopen_reason=""),
                name="period_reopened_for_a_reason",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.month:%Y-%m}"


class BookedCost(models.Model):
    """A line of a closed month. No team: the platform pays; no workload: unallocated."""

    day = models.DateField()
    cluster = dimension("clusters.Cluster")
    tier = dimension("clusters.Tier")
    gpu_model = dimension("clusters.GpuModel")
    capacity_type = models.CharField(max_length=10)
    team = dimension("accounts.Team", null=True)
    namespace = dimension("clusters.Namespace", null=True)
    workload = dimension("clusters.Workload", null=True)
    cause = models.CharField(max_length=16, choices=[(c.value, c.value) for c in Cause])
    currency = models.CharField(max_length=3, blank=True)
    gpu_hours = models.BigIntegerField()
    cost = models.BigIntegerField()
    unpriced = models.BigIntegerField()

    class Meta:
        abstract = True


class ClosedAmount(BookedCost):
    """What was frozen; kept for ever, and only written when its month is closed."""

    period = models.ForeignKey("costs.ClosedPeriod", on_delete=models.PROTECT)

    class Meta:
        ordering = ["period", "day", "pk"]
        indexes = [models.Index(fields=["period", "cluster", "day"], name="closed_amount_day")]

    def __str__(self) -> str:
        return f"{self.period_id} {self.day} {self.cause}"


class Adjustment(BookedCost):
    """A difference to a closed month, booked on a day of the month that was open then."""

    period = models.ForeignKey("costs.ClosedPeriod", on_delete=models.PROTECT)
    booked_on = models.DateField()
    booked_at = models.DateTimeField()

    class Meta:
        ordering = ["booked_on", "pk"]
        indexes = [
            models.Index(fields=["booked_on"], name="adjustment_booked"),
            models.Index(fields=["period", "cluster", "day"], name="adjustment_day"),
        ]

    def __str__(self) -> str:
        return f"{self.period_id} {self.day} booked {self.booked_on}"


class Export(models.Model):
    """A cost file that somebody asked for, how far it is, and where it lies.

    `question` is the query (`domain.exports` as JSON); `everything` and `team_ids` are what the
    person could see then: the file never holds more, whatever they may see later. The holder of
    `lease` may write here until `lease_until`. `rows_expected` is an estimate, None without one.
    `file_name` is the name of the download, `path` where it lies in the folder of exports; both are
    empty until it is done.
    """

    asked_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    subject = models.CharField(max_length=8, choices=[(s.value, s.value) for s in ExportSubject])
    format = models.CharField(max_length=16, choices=[(f.value, f.value) for f in FileFormat])
    question = models.JSONField()
    everything = models.BooleanField(default=False)
    team_ids = models.JSONField(default=list)
    state = models.CharField(
        max_length=8,
        choices=[(s.value, s.value) for s in ExportState],
        default=ExportState.QUEUED.value,
    )
    attempts = models.PositiveSmallIntegerField(default=0)
    lease = models.CharField(max_length=32, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    rows_written = models.PositiveBigIntegerField(default=0)
    rows_expected = models.PositiveBigIntegerField(null=True, blank=True)
    size = models.PositiveBigIntegerField(null=True, blank=True)
    sha256 = models.CharField(max_length=64, blank=True)
    file_name = models.CharField(max_length=250, blank=True)
    path = models.CharField(max_length=120, blank=True)
    error = models.TextField(blank=True)
    asked_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-asked_at", "-pk"]
        indexes = [
            models.Index(fields=["asked_by", "-asked_at"], name="export_of_person"),
            models.Index(fields=["state", "lease_until"], name="export_state"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=~Q(state=ExportState.DONE.value)
                | (~Q(sha256="") & ~Q(path="") & Q(size__isnull=False)),
                name="export_done_has_file",
            ),
            models.CheckConstraint(
                condition=~Q(state=ExportState.FAILED.value) | ~Q(error=""),
                name="export_failed_for_a_reason",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.subject} as {self.format} for {self.asked_by_id}"


class ClosedFile(models.Model):
    """A file of a closed month, kept as it was when the month was closed.

    `sha256` is that of the closing; the bytes lie under it in the folder of exports. Where they
    are missing the file is made anew: `remade_at` says when, `remade_sha256` what came out. A
    newer Parquet library writes other bytes of the same rows.
    """

    period = models.ForeignKey("costs.ClosedPeriod", on_delete=models.CASCADE)
    format = models.CharField(max_length=16, choices=[(f.value, f.value) for f in FileFormat])
    sha256 = models.CharField(max_length=64)
    size = models.PositiveBigIntegerField(null=True, blank=True)
    kept_at = models.DateTimeField(null=True, blank=True)
    remade_at = models.DateTimeField(null=True, blank=True)
    remade_sha256 = models.CharField(max_length=64, blank=True)

    class Meta:
        ordering = ["period", "format"]
        constraints = [
            models.UniqueConstraint(fields=["period", "format"], name="closed_file_once"),
        ]

    def __str__(self) -> str:
        return f"{self.period_id} as {self.format}"


class MonthlyMail(models.Model):
    """A month's report to one address: sent once, tried again until it is.

    It is pending from its due day until its month is complete. The holder of `lease_until` is
    sending it. `error` is of the last try.
    """

    month = models.DateField()
    recipient = models.CharField(max_length=254)
    state = models.CharField(
        max_length=8,
        choices=[(s.value, s.value) for s in MailState],
        default=MailState.DUE.value,
    )
    attempts = models.PositiveSmallIntegerField(default=0)
    next_at = models.DateTimeField()
    lease_until = models.DateTimeField(null=True, blank=True)
    sent_at = models.DateTimeField(null=True, blank=True)
    error = models.TextField(blank=True)

    class Meta:
        ordering = ["-month", "recipient"]
        constraints = [
            models.UniqueConstraint(fields=["month", "recipient"], name="monthly_mail_once"),
        ]

    def __str__(self) -> str:
        return f"{self.month:%Y-%m} to {self.recipient}"


class Recommendation(models.Model):
    """One change of one subject over time: its figures move, the row stays.

    Its subject: a workload (`Kind/name`), a quota (`source/name`), a node or, with none of these, a
    tier's pool; `team` null: of no team in particular. `saving_per_month` is of 730 hours, null:
    unpriced. `alternative`: another one of the same subject saves more, so this one is not added to
    it. `decided_*` tell who dismissed or accepted it, and a dismissal's reason.

    From acceptance on its figures stand still. `cost_before` is what the subject cost in the
    `days_before` days until then; the four after it say what was found since, when last looked at.

    `covers` is what it avoids of the waste of the evidence's days, as lists of the name of a cell,
    the cause and units of 1e-8 (`domain.recommendations.recommendation`).

    `change_values` has the fields of the kind's `ChangeValues`, null: it has none, or they were not
    kept yet. `replay` has the fields of `ReplayedEffects` and what they are worth a month, null
    where nothing was replayed; `replay_gap` then says why. `replayed_at` is when that was last
    tried.
    """

    kind = models.CharField(max_length=20, choices=[(k.value, k.value) for k in RecommendationKind])
    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE)
    tier = models.ForeignKey("clusters.Tier", null=True, on_delete=models.CASCADE)
    team = models.ForeignKey("accounts.Team", null=True, on_delete=models.CASCADE)
    namespace = models.CharField(max_length=253, blank=True)
    workload = models.CharField(max_length=320, blank=True)
    node = models.CharField(max_length=253, blank=True)
    change = models.TextField()
    patch = models.TextField(blank=True)
    saving_per_month = models.DecimalField(max_digits=20, decimal_places=2, null=True)
    currency = models.CharField(max_length=3, blank=True)
    confidence = models.CharField(max_length=6, choices=[(c.value, c.value) for c in Confidence])
    reason = models.TextField()
    evidence = models.JSONField(default=dict)
    alternative = models.BooleanField(default=False)
    first_seen = models.DateTimeField()
    last_seen = models.DateTimeField()
    state = models.CharField(
        max_length=9,
        choices=[(s.value, s.value) for s in RecommendationState],
        default=RecommendationState.OPEN.value,
    )
    covers = models.JSONField(default=list)
    change_values = models.JSONField(null=True)
    replay = models.JSONField(null=True)
    replay_gap = models.CharField(
        max_length=16,
        blank=True,
        default="",
        db_default="",
        choices=[(gap.value, gap.value) for gap in ReplayGap],
    )
    replayed_at = models.DateTimeField(null=True, blank=True)
    decided_by = models.CharField(max_length=150, blank=True)
    decided_at = models.DateTimeField(null=True, blank=True)
    dismiss_reason = models.TextField(blank=True)
    cost_before = models.DecimalField(max_digits=28, decimal_places=8, null=True)
    days_before = models.FloatField(null=True)
    cost_after = models.DecimalField(max_digits=28, decimal_places=8, null=True)
    days_after = models.FloatField(null=True)
    verdict = models.CharField(
        max_length=12, blank=True, choices=[(v.value, v.value) for v in FollowUpOutcome]
    )
    saved_per_month = models.DecimalField(max_digits=20, decimal_places=2, null=True)

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(
                "kind",
                "cluster",
                "namespace",
                "workload",
                Coalesce("tier", 0),
                "node",
                name="recommendation_once",
            ),
            models.CheckConstraint(
                condition=~Q(state="dismissed") | ~Q(dismiss_reason=""),
                name="recommendation_dismissed_for_a_reason",
            ),
        ]
        indexes = [
            models.Index(fields=["state", "-saving_per_month"], name="recommendation_state"),
            models.Index(fields=["team", "state"], name="recommendation_team"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.workload or self.node}"


class WasteSum(models.Model):
    """Waste of a tier over the days of a run, in units of 1e-8, by cause and by what covers it.

    `reason` is COVERED for what recommendations found would avoid, else why none would
    (`CoverageGap`). Team null: the platform's.
    """

    COVERED = "covered"

    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE)
    tier = models.ForeignKey("clusters.Tier", on_delete=models.CASCADE)
    team = models.ForeignKey("accounts.Team", null=True, on_delete=models.CASCADE)
    cause = models.CharField(max_length=12)
    reason = models.CharField(max_length=16)
    currency = models.CharField(max_length=3)
    cost = models.BigIntegerField()

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.CheckConstraint(condition=Q(cost__gte=0), name="waste_sum_not_negative")
        ]

    def __str__(self) -> str:
        return f"{self.tier_id} {self.cause} {self.reason}"


class RecommendationRun(models.Model):
    """That a cluster's evidence from `first` to `day` was looked at; `found` recommendations.

    `collected_at` is when the newest of its hours was collected: what is collected later is due.
    """

    cluster = models.OneToOneField("clusters.Cluster", on_delete=models.CASCADE)
    first = models.DateField(null=True)
    day = models.DateField()
    at = models.DateTimeField()
    collected_at = models.DateTimeField(null=True)
    found = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["cluster"]

    def __str__(self) -> str:
        return f"{self.cluster_id} {self.day}"
