"""Bookings: requests with a start. They may overlap on a key, and are scheduled until it comes."""

from typing import Any

from django.db import migrations, models
from django.db.models import Q

_TARGET = ["cluster", "source", "namespace", "name", "key"]
_OPEN = ["applying", "approved", "changes asked", "failed", "in review", "submitted"]
_STATES = [
    *("draft", "submitted", "in review", "changes asked", "approved", "scheduled", "rejected"),
    *("withdrawn", "applying", "applied", "failed", "reverting", "reverted", "expired"),
]
_ONCE = models.UniqueConstraint(
    fields=_TARGET,
    condition=Q(state__in=_OPEN, starts_at__isnull=True),
    name="change_open_once",
)
_KNOWN = models.CheckConstraint(condition=Q(state__in=_STATES), name="change_state_known")
_OLD_ONCE = models.UniqueConstraint(
    fields=_TARGET, condition=Q(state__in=_OPEN), name="change_open_once"
)
_OLD_KNOWN = models.CheckConstraint(
    condition=Q(state__in=[state for state in _STATES if state != "scheduled"]),
    name="change_state_known",
)


def _replace(apps: Any, editor: Any, pairs: Any) -> None:
    """Put constraints in the place of those of the same name.

    The table has a row for each request that people ever wrote: it is checked at once.
    """
    model = apps.get_model("quota_requests", "ChangeRequest")
    names = {new.name for _, new in pairs}
    kept = [one for one in model._meta.constraints if one.name not in names]
    model._meta.constraints = [*kept, *(new for _, new in pairs)]
    if editor.connection.vendor == "sqlite":
        # A check makes it build the table anew, with all constraints of the model.
        editor.add_constraint(model, model._meta.constraints[-1])
        return
    for old, new in pairs:
        editor.remove_constraint(model, old)
        editor.add_constraint(model, new)


def widen(apps: Any, schema_editor: Any) -> None:
    """What the version before writes fits the wider constraints."""
    _replace(apps, schema_editor, [(_OLD_ONCE, _ONCE), (_OLD_KNOWN, _KNOWN)])


def narrow(apps: Any, schema_editor: Any) -> None:
    """Go back. Fails while a booking is scheduled."""
    _replace(apps, schema_editor, [(_ONCE, _OLD_ONCE), (_KNOWN, _OLD_KNOWN)])


class Migration(migrations.Migration):
    dependencies = [("quota_requests", "0001_tables")]

    operations = [
        migrations.AddField(
            "changerequest", "starts_at", models.DateTimeField(blank=True, null=True)
        ),
        migrations.AddField("changerequest", "confirmed", models.JSONField(blank=True, null=True)),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunPython(widen, narrow, elidable=True)],
            state_operations=[
                migrations.RemoveConstraint("changerequest", "change_open_once"),
                migrations.AddConstraint("changerequest", _ONCE),
                migrations.RemoveConstraint("changerequest", "change_state_known"),
                migrations.AddConstraint("changerequest", _KNOWN),
                migrations.AlterField(
                    "changerequest",
                    "state",
                    models.CharField(
                        choices=[(state, state) for state in _STATES],
                        default="draft",
                        max_length=16,
                    ),
                ),
            ],
        ),
    ]
