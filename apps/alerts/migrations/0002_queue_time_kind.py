"""Alerts about queue times: a further choice, which the database does not know of."""

from django.db import migrations, models

KINDS = [
    *(("budget", "budget"), ("quota", "quota"), ("idle", "idle"), ("wait", "wait")),
    *(("data gap", "data gap"), ("drift", "drift"), ("request", "request")),
    *(("revert", "revert"), ("queue", "queue")),
]


def _kind(model: str, **more: bool) -> migrations.AlterField:
    return migrations.AlterField(
        model, "kind", models.CharField(max_length=8, choices=KINDS, **more)
    )


class Migration(migrations.Migration):
    dependencies = [("alerts", "0001_tables")]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                _kind("alert"),
                _kind("alertstate"),
                _kind("mute", blank=True),
                _kind("readmarker", blank=True),
            ]
        )
    ]
