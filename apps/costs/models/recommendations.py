"""What could be had for less, what became of it, and how far the evidence was looked at."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Coalesce

from apps.costs.domain.recommendations.follow_up import FollowUpOutcome
from apps.costs.domain.recommendations.recommendation import Confidence, RecommendationKind
from apps.costs.domain.recommendations.states import RecommendationState


class Recommendation(models.Model):
    """One change of one subject over time: its figures move, the row stays.

    What it is about: a workload (`Kind/name`), a quota (`source/name`), a node or, with none of
    these, a tier's pool; `team` null: nobody's in particular. `saving_per_month` is of 730 hours,
    null: unpriced. `alternative`: another one of the same subject saves more, so this one is not
    added to it. `decided_*` tell who dismissed or accepted it, and a dismissal's reason.

    From acceptance on its figures stand still. `cost_before` is what the subject cost in the
    `days_before` days until then; the four after it say what was found since, when last looked at.

    `covers` is what it avoids of the waste of the evidence's days, as lists of the name of a cell,
    the cause and units of 1e-8 (`domain.recommendations.coverage`).
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
    (`domain.recommendations.coverage.Gap`). Team null: the platform's.
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
