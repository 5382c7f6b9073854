"""What was said of the cluster, to whom it goes, and what became of each delivery."""

from django.db import models
from django.db.models import F, Q

from apps.alerts.domain.alerts import LONGEST_REASON, AlertKind, IdleChoice
from apps.alerts.domain.channels import ChannelKind
from apps.alerts.domain.digests import Cadence

KINDS = [(k.value, k.value) for k in AlertKind]


class Channel(models.Model):
    """Where alerts go: of one person (`owner`), of a team, or of the platform (neither).

    `sealed` is the address, encrypted, since who has a webhook's address can post to it; `shown`
    is what of it may be read. `kinds` are the kinds that are wanted.
    """

    name = models.CharField(max_length=80)
    kind = models.CharField(max_length=8, choices=[(k.value, k.value) for k in ChannelKind])
    owner = models.ForeignKey(
        "accounts.User", null=True, blank=True, on_delete=models.CASCADE, related_name="channels"
    )
    team = models.ForeignKey(
        "accounts.Team", null=True, blank=True, on_delete=models.CASCADE, related_name="channels"
    )
    # Of no length: encryption makes an address longer by some hundred characters.
    sealed = models.TextField()
    shown = models.CharField(max_length=254)
    kinds = models.JSONField(default=list)
    cadence = models.CharField(
        max_length=8, choices=[(c.value, c.value) for c in Cadence], default=Cadence.AT_ONCE.value
    )
    at = models.TimeField(default="08:00")
    weekday = models.PositiveSmallIntegerField(default=0)
    quiet_from = models.TimeField(null=True, blank=True)
    quiet_to = models.TimeField(null=True, blank=True)
    active = models.BooleanField(default=True)
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["name", "pk"]
        constraints = [
            models.CheckConstraint(
                condition=Q(owner__isnull=True) | Q(team__isnull=True), name="channel_one_owner"
            ),
            models.CheckConstraint(condition=Q(weekday__lte=6), name="channel_weekday"),
            models.CheckConstraint(
                condition=Q(quiet_from__isnull=True, quiet_to__isnull=True)
                | Q(quiet_from__isnull=False, quiet_to__isnull=False),
                name="channel_quiet_hours_whole",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class AlertState(models.Model):
    """The level that a subject stands at, and what was last said of it; see `alerts.judge`.

    `level` null: it stands at none, and is remembered for what was said a short while ago.
    """

    kind = models.CharField(max_length=8, choices=KINDS)
    subject = models.CharField(max_length=600)
    level = models.FloatField(null=True, blank=True)
    said_level = models.FloatField(null=True, blank=True)
    said_at = models.DateTimeField()

    class Meta:
        ordering = ["kind", "subject"]
        constraints = [
            models.UniqueConstraint(fields=["kind", "subject"], name="standing_once"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.subject} at {self.level}"


class SourceCursor(models.Model):
    """The lock of a kind or source of alerts while it runs; `position` is how far it read.

    For FIRST_ROUND it is the time of the first round, in Unix seconds; for HISTORY the last alert
    about what stood before that round.
    """

    FIRST_ROUND, HISTORY = "first round", "history"

    name = models.CharField(primary_key=True, max_length=40)
    position = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.name} {self.position}"


class Alert(models.Model):
    """One thing said at one time. `key` tells occasions apart, so that each is said once.

    `team` is whose it is, null for the platform; `path` the page of the portal that shows it.
    With a `person` it is for that account alone: no list shows it, and no channel but their own
    delivers it.
    """

    key = models.CharField(max_length=900, unique=True)
    kind = models.CharField(max_length=8, choices=KINDS)
    subject = models.CharField(max_length=600)
    team = models.ForeignKey(
        "accounts.Team", null=True, blank=True, on_delete=models.CASCADE, related_name="alerts"
    )
    person = models.ForeignKey(
        "accounts.User",
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        db_index=False,  # few have one, and an index would lock the table of all while it is made
        related_name="alerts",
    )
    title = models.CharField(max_length=200)
    text = models.TextField()
    path = models.CharField(max_length=1000, blank=True)
    at = models.DateTimeField()
    urgent = models.BooleanField(default=False)

    class Meta:
        ordering = ["-at", "-pk"]
        indexes = [
            models.Index(fields=["-at", "-id"], name="notice_latest"),
            models.Index(fields=["team", "-at", "-id"], name="notice_of_team"),
            models.Index(fields=["kind", "subject"], name="notice_of_subject"),
        ]

    def __str__(self) -> str:
        return self.title


class Delivery(models.Model):
    """One alert on one channel; who holds `lease` until `lease_until` sends it.

    A delivery that is muted was never sent; one given up failed too often, and `error` says how.
    """

    class State(models.TextChoices):
        QUEUED = "queued"
        SENT = "sent"
        MUTED = "muted"
        GIVEN_UP = "given up"

    alert = models.ForeignKey(Alert, on_delete=models.CASCADE, related_name="deliveries")
    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="deliveries")
    state = models.CharField(max_length=8, choices=State.choices, default=State.QUEUED)
    due_at = models.DateTimeField()
    failures = models.PositiveSmallIntegerField(default=0)
    error = models.CharField(max_length=500, blank=True)
    sent_at = models.DateTimeField(null=True, blank=True)
    lease = models.CharField(max_length=32, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-due_at", "-pk"]
        constraints = [
            models.UniqueConstraint(fields=["alert", "channel"], name="delivery_once"),
            models.CheckConstraint(
                condition=Q(state="sent") ^ Q(sent_at__isnull=True), name="delivery_sent_at"
            ),
        ]
        indexes = [
            models.Index(fields=["due_at", "id"], condition=Q(state="queued"), name="delivery_due"),
            models.Index(fields=["channel", "-id"], name="delivery_of_channel"),
        ]

    def __str__(self) -> str:
        return f"{self.alert_id} on {self.channel_id}: {self.state}"


class Mute(models.Model):
    """Nothing of `kind` (empty: any) about `subject` (empty: anything) goes to a channel then."""

    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="mutes")
    kind = models.CharField(max_length=8, choices=KINDS, blank=True)
    subject = models.CharField(max_length=600, blank=True)
    start = models.DateTimeField()
    end = models.DateTimeField()
    why = models.CharField(max_length=500, blank=True)
    by = models.CharField(max_length=150)

    class Meta:
        ordering = ["-end", "pk"]
        constraints = [
            models.CheckConstraint(condition=Q(end__gt=F("start")), name="mute_forward"),
        ]

    def __str__(self) -> str:
        return f"{self.kind or 'anything'} until {self.end}"


class IdleAnswer(models.Model):
    """What a person answered to an idle alert; of several about one subject the last counts.

    `of_person`: it was about the person's own work, so their name tells whose that is. It is
    emptied when what is kept of persons goes.
    """

    subject = models.CharField(max_length=600)
    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE)
    choice = models.CharField(max_length=8, choices=[(c.value, c.value) for c in IdleChoice])
    person = models.CharField(max_length=150)
    at = models.DateTimeField()
    reason = models.CharField(max_length=LONGEST_REASON, blank=True)
    until = models.DateTimeField(null=True, blank=True)
    of_person = models.BooleanField(default=False, db_default=False)

    class Meta:
        ordering = ["-at", "-pk"]
        indexes = [models.Index(fields=["subject", "-at", "-id"], name="idle_answer_of_subject")]

    def __str__(self) -> str:
        return f"{self.person}: {self.choice} {self.subject}"


class ReadMarker(models.Model):
    """Up to which alert a person has read what was said of a subject; of everything without one."""

    user = models.ForeignKey("accounts.User", on_delete=models.CASCADE, related_name="read_markers")
    kind = models.CharField(max_length=8, choices=KINDS, blank=True)
    subject = models.CharField(max_length=600, blank=True)
    up_to = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "kind", "subject"], name="read_marker_once"),
        ]

    def __str__(self) -> str:
        return f"{self.user_id} read {self.kind or 'everything'} up to {self.up_to}"
