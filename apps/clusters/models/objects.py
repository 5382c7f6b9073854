"""How objects that wait, and those that limit them, were last seen."""

from django.db import models
from django.db.models import F, Q

from apps.clusters.domain.observed.objects import ObservedKind

KINDS = [(kind.value, kind.value) for kind in ObservedKind]


class ObservedObject(models.Model):
    """An object as it was last seen; of kinds with history one row for each setting of it.

    `body` has the fields of the kind's dataclass. `first_at` is when it was first seen so (of
    kinds without history: at all), `changed_at` when it last changed, `gone_at` when it went or
    was set anew.
    """

    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE)
    kind = models.CharField(max_length=40, choices=KINDS)
    uid = models.CharField(max_length=64)
    namespace = models.CharField(max_length=253, blank=True)
    name = models.CharField(max_length=253)
    first_at = models.DateTimeField()
    changed_at = models.DateTimeField()
    gone_at = models.DateTimeField(null=True, blank=True)
    body = models.JSONField(default=dict)

    class Meta:
        ordering = ["cluster", "kind", "uid", "first_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "kind", "uid", "first_at"], name="observed_object_once"
            ),
            models.CheckConstraint(
                condition=Q(gone_at__isnull=True) | Q(gone_at__gte=F("first_at")),
                name="observed_object_forward",
            ),
        ]
        indexes = [
            models.Index(fields=["cluster", "kind", "gone_at"], name="observed_object_present")
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"
