"""Requests to change a quota, what was said of them, how they were carried out, and the audit."""

from django.db import models
from django.db.models import F, Q

from apps.quota_requests.domain.execution.applied_changes import DriftKind
from apps.quota_requests.domain.execution.executor import ApplyStage
from apps.quota_requests.domain.states import OPEN, WRITING, RequestState
from apps.quotas.domain.keys import QuotaRef, QuotaSource

STATES = [(s.value, s.value) for s in RequestState]
# Queues of KAI are read and never changed.
SOURCES = [(s.value, s.value) for s in QuotaSource if s is not QuotaSource.KAI_QUEUE]
OPEN_STATES = sorted(s.value for s in OPEN)
WRITING_STATES = sorted(s.value for s in WRITING)
SERVER_SAID = "server_said"
"""In the audit, what a cluster's own words stand under: they are for administrators."""
TARGET = ["cluster", "source", "namespace", "name", "key"]


def same_key(ref: QuotaRef) -> Q:
    """Return which requests are about a quota key."""
    source, namespace, name, key, cluster = ref
    return Q(cluster__name=cluster, source=source, namespace=namespace, name=name, key=key)


class ChangeRequest(models.Model):
    """One quota key, from → to; amounts are texts of Kubernetes quantities.

    `version` grows with every change of the row: who decides says which version was read.
    `authors` are all who wrote or edited it, `approvals` who approved the text as it is.
    `changed_at` is of the last write of the row; `state_since` and `state_by` are of the last
    change of `state`, and empty in rows of before these were kept.
    `starts_at` is the start of a booking, `before` then the amount that is planned for that time;
    `confirmed` are the owners of the field whom its approver agreed to take it over from.
    `evidence`, `preview` and `ruling` are frozen at submission. `reverts_at` is when the portal
    takes a raise back by itself (null: never, or no more); `announced` counts what was said of it
    beforehand. `outcome` is the last sentence of the record.
    """

    # Protected: what was asked of a cluster, and by whom, outlives its place in the catalog.
    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.PROTECT)
    team = models.ForeignKey("accounts.Team", on_delete=models.PROTECT)
    source = models.CharField(max_length=16, choices=SOURCES)
    namespace = models.CharField(max_length=253, blank=True)
    name = models.CharField(max_length=253)
    key = models.CharField(max_length=530)
    before = models.CharField(max_length=40)
    after = models.CharField(max_length=40)
    tiers = models.JSONField(default=list)
    reason = models.TextField()
    needed_by = models.DateTimeField(null=True, blank=True)
    until = models.DateTimeField(null=True, blank=True)
    starts_at = models.DateTimeField(null=True, blank=True)
    confirmed = models.JSONField(null=True, blank=True)
    state = models.CharField(max_length=16, choices=STATES, default=RequestState.DRAFT.value)
    version = models.PositiveIntegerField(default=1)
    authors = models.JSONField(default=list)
    approvals = models.JSONField(default=list)
    approvals_needed = models.PositiveSmallIntegerField(default=1)
    by_rule = models.BooleanField(default=False)
    reviewer = models.CharField(max_length=150, blank=True)
    created_at = models.DateTimeField()
    changed_at = models.DateTimeField()
    changed_by = models.CharField(max_length=150)
    state_since = models.DateTimeField(null=True, blank=True)
    state_by = models.CharField(max_length=150, blank=True)
    submitted_at = models.DateTimeField(null=True, blank=True)
    decided_at = models.DateTimeField(null=True, blank=True)
    applied_at = models.DateTimeField(null=True, blank=True)
    reverts_at = models.DateTimeField(null=True, blank=True)
    announced = models.PositiveSmallIntegerField(default=0)
    outcome = models.TextField(blank=True)
    evidence = models.JSONField(default=dict)
    preview = models.JSONField(default=dict)
    ruling = models.JSONField(default=dict)

    class Meta:
        ordering = ["-changed_at", "-pk"]
        constraints = [
            # The database decides who was first: a check beforehand leaves a gap between two
            # workers.
            models.UniqueConstraint(
                fields=TARGET,
                condition=Q(state__in=OPEN_STATES, starts_at__isnull=True),
                name="change_open_once",
            ),
            models.UniqueConstraint(
                fields=TARGET, condition=Q(state__in=WRITING_STATES), name="change_written_once"
            ),
            models.CheckConstraint(
                condition=Q(state__in=[s.value for s in RequestState]), name="change_state_known"
            ),
            models.CheckConstraint(condition=~Q(before=F("after")), name="change_changes"),
        ]
        indexes = [
            models.Index(fields=["state", "-changed_at", "-id"], name="change_in_state"),
            models.Index(fields=["team", "-changed_at", "-id"], name="change_of_team"),
            models.Index(fields=["-changed_at", "-id"], name="change_latest"),
            models.Index(fields=["reverts_at"], name="change_reverts"),
            models.Index(fields=[*TARGET, "applied_at"], name="change_of_target"),
        ]

    def __str__(self) -> str:
        return f"{self.pk}: {self.key} {self.before} → {self.after}"

    @property
    def audit_subject(self) -> str:
        """How the audit names this request."""
        return f"quota-request/{self.pk}"

    @property
    def ref(self) -> QuotaRef:
        return QuotaRef(self.source, self.namespace, self.name, self.key, self.cluster.name)


# A table, for SQLite has no index into the JSON list that the request itself holds.
class Author(models.Model):
    """One of `ChangeRequest.authors`, by which a person's requests are found."""

    request = models.ForeignKey(ChangeRequest, on_delete=models.CASCADE, related_name="written_by")
    username = models.CharField(max_length=150)

    class Meta:
        ordering = ["request", "username"]
        constraints = [
            models.UniqueConstraint(fields=["username", "request"], name="change_author_once")
        ]

    def __str__(self) -> str:
        return f"{self.username} of {self.request_id}"


class Comment(models.Model):
    """What somebody said of a request; `offer` is the amount that a reviewer would approve."""

    request = models.ForeignKey(ChangeRequest, on_delete=models.CASCADE, related_name="comments")
    at = models.DateTimeField()
    author = models.CharField(max_length=150)
    text = models.TextField()
    offer = models.CharField(max_length=40, blank=True)

    class Meta:
        ordering = ["request", "at", "pk"]

    def __str__(self) -> str:
        return f"{self.author} on {self.request_id}"


class Execution(models.Model):
    """Carrying out one order: what is written before each step, so that any worker can go on.

    `mark` is how far it came, `sent` counts patches that left (each was noted before it did),
    `failures` what went wrong before, `refusal` a plain no of the server to the patch; until
    `doubt_until` a patch without a clear answer may still take effect. `detail` are the server's
    own words to `sentence`, for administrators. Only who holds `lease` until `lease_until` may
    write here. `confirmed` are the other owners of the field
    whom a person agreed to take it over from. `before_raw` and `after_raw` are the JSON values of
    the cluster. `end` is empty while it lasts.
    """

    DIRECT, GITOPS = "direct", "gitops"
    APPLY, REVERT = "apply", "revert"

    request = models.ForeignKey(ChangeRequest, on_delete=models.CASCADE, related_name="executions")
    order = models.CharField(max_length=6, choices=[(APPLY, APPLY), (REVERT, REVERT)])
    mode = models.CharField(max_length=6, choices=[(DIRECT, DIRECT), (GITOPS, GITOPS)])
    reviewed = models.CharField(max_length=40)
    wanted = models.CharField(max_length=40)
    confirmed = models.JSONField(default=list)
    patch_file = models.JSONField(default=dict)
    started_by = models.CharField(max_length=150)
    started_at = models.DateTimeField()
    mark = models.CharField(
        max_length=9,
        choices=[(m.value, m.value) for m in ApplyStage],
        default=ApplyStage.NONE.value,
    )
    sent = models.PositiveIntegerField(default=0)
    first_sent_at = models.DateTimeField(null=True, blank=True)
    doubt_until = models.DateTimeField(null=True, blank=True)
    failures = models.PositiveIntegerField(default=0)
    refusal = models.TextField(blank=True)
    sentence = models.TextField(blank=True)
    detail = models.TextField(blank=True)
    next_at = models.DateTimeField()
    lease = models.CharField(max_length=32, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    before_raw = models.JSONField(null=True, blank=True)
    after_raw = models.JSONField(null=True, blank=True)
    end = models.CharField(max_length=16, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    written = models.BooleanField(default=False)
    drifted = models.BooleanField(default=False)

    class Meta:
        ordering = ["request", "started_at", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["request"], condition=Q(ended_at__isnull=True), name="execution_open_once"
            ),
            models.CheckConstraint(
                condition=Q(end="") ^ Q(ended_at__isnull=False), name="execution_ends_with_a_time"
            ),
        ]
        indexes = [models.Index(fields=["ended_at", "next_at"], name="execution_due")]

    def __str__(self) -> str:
        return f"{self.order} of {self.request_id}: {self.mark}"


class DriftInterval(models.Model):
    """A span in which the cluster showed something else than what was approved last.

    `live` is empty where the limit or its object is gone. `accepted_by` took `live` for right.
    """

    request = models.ForeignKey(ChangeRequest, on_delete=models.CASCADE, related_name="drifts")
    kind = models.CharField(max_length=12, choices=[(k.value, k.value) for k in DriftKind])
    approved = models.CharField(max_length=40)
    live = models.CharField(max_length=40, blank=True)
    sentence = models.TextField()
    found_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    accepted_by = models.CharField(max_length=150, blank=True)

    class Meta:
        ordering = ["-found_at", "-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["request"], condition=Q(ended_at__isnull=True), name="drift_open_once"
            ),
            models.CheckConstraint(
                condition=Q(ended_at__isnull=True) | Q(ended_at__gte=F("found_at")),
                name="drift_forward",
            ),
        ]

    def __str__(self) -> str:
        return self.sentence


class AuditCheck(models.Model):
    """What the last check of the whole audit found; one row.

    `number` and `digest` are the head of the last check that held (0 and empty: none did yet),
    against which the next one is held: an audit that was written anew as a whole shows too.
    `words` say what does not hold, `held_at` when everything did last.
    """

    at = models.DateTimeField()
    holds = models.BooleanField()
    words = models.TextField()
    number = models.PositiveBigIntegerField(default=0)
    digest = models.CharField(max_length=64, blank=True)
    held_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.words
