"""Files that were asked for, and monthly reports that were sent."""

from django.conf import settings
from django.db import models
from django.db.models import Q

from apps.costs.domain.exports import ExportState, ExportSubject, MailState
from apps.costs.domain.files import FileFormat


class Export(models.Model):
    """A cost file that somebody asked for, how far it is, and where it lies.

    `question` is what is asked (`domain.exports.Asked` as JSON); `everything` and `team_ids` what
    the person could see then: the file holds no more, whoever is let see what later. Whoever holds
    `lease` until `lease_until` may write here. `rows_expected` is an estimate, None where nobody
    knows. `file_name` is what the download is called, `path` where it lies in the folder of
    exports; both are empty until it is done.
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

    It waits from the day on which it is due until its month is whole.
    Whoever holds `lease_until` is sending it. `error` is of the last try.
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
