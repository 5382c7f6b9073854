"""Alerts of caps per person: a choice that the database has no part in."""

from django.db import migrations, models

KINDS = [
    *(("budget", "budget"), ("quota", "quota"), ("idle", "idle"), ("wait", "wait")),
    *(("data gap", "data gap"), ("drift", "drift"), ("request", "request")),
    *(("revert", "revert"), ("queue", "queue"), ("digest", "digest"), ("cap", "cap")),
]


def _kind(model: str, **more: bool) -> migrations.AlterField:
    return migrations.AlterField(
        model, "kind", models.CharField(max_length=8, choices=KINDS, **more)
    )


class Migration(migrations.Migration):
    dependencies = [("alerts", "0004_answers_of_persons")]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                _kind("alert"),
                _kind("alertstate"),
                _kind("mute", blank=True),
                _kind("readmarker", blank=True),
            ]
        ),
    ]
