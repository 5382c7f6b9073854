"""Weekly digests of persons: whose they are, and choices that the database has no part in."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

KINDS = [
    *(("budget", "budget"), ("quota", "quota"), ("idle", "idle"), ("wait", "wait")),
    *(("data gap", "data gap"), ("drift", "drift"), ("request", "request")),
    *(("revert", "revert"), ("queue", "queue"), ("digest", "digest")),
]
CHOICES = [("keep", "keep"), ("release", "release"), ("silence", "silence")]


def _kind(model: str, **more: bool) -> migrations.AlterField:
    return migrations.AlterField(
        model, "kind", models.CharField(max_length=8, choices=KINDS, **more)
    )


class Migration(migrations.Migration):
    dependencies = [
        ("alerts", "0002_queue_time_kind"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            "alert",
            "person",
            models.ForeignKey(
                blank=True,
                null=True,
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="alerts",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.SeparateDatabaseAndState(
            state_operations=[
                _kind("alert"),
                _kind("alertstate"),
                _kind("mute", blank=True),
                _kind("readmarker", blank=True),
                migrations.AlterField(
                    "idleanswer", "choice", models.CharField(max_length=8, choices=CHOICES)
                ),
            ]
        ),
    ]
