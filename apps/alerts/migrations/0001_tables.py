import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("accounts", "0001_tables"),
        ("accounts", "__first__"),
    ]

    operations = [
        migrations.CreateModel(
            name="SourceCursor",
            fields=[
                ("name", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("position", models.BigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name="Alert",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("key", models.CharField(max_length=900, unique=True)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("budget", "budget"),
                            ("quota", "quota"),
                            ("idle", "idle"),
                            ("wait", "wait"),
                            ("data gap", "data gap"),
                            ("drift", "drift"),
                            ("request", "request"),
                            ("revert", "revert"),
                        ],
                        max_length=8,
                    ),
                ),
                ("subject", models.CharField(max_length=600)),
                ("title", models.CharField(max_length=200)),
                ("text", models.TextField()),
                ("path", models.CharField(blank=True, max_length=1000)),
                ("at", models.DateTimeField()),
                ("urgent", models.BooleanField(default=False)),
                (
                    "team",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="alerts",
                        to="accounts.team",
                    ),
                ),
            ],
            options={
                "ordering": ["-at", "-pk"],
                "indexes": [
                    models.Index(fields=["-at", "-id"], name="notice_latest"),
                    models.Index(fields=["team", "-at", "-id"], name="notice_of_team"),
                    models.Index(fields=["kind", "subject"], name="notice_of_subject"),
                ],
            },
        ),
        migrations.CreateModel(
            name="AlertState",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("budget", "budget"),
                            ("quota", "quota"),
                            ("idle", "idle"),
                            ("wait", "wait"),
                            ("data gap", "data gap"),
                            ("drift", "drift"),
                            ("request", "request"),
                            ("revert", "revert"),
                        ],
                        max_length=8,
                    ),
                ),
                ("subject", models.CharField(max_length=600)),
                ("level", models.FloatField(blank=True, null=True)),
                ("said_level", models.FloatField(blank=True, null=True)),
                ("said_at", models.DateTimeField()),
            ],
            options={
                "ordering": ["kind", "subject"],
                "constraints": [
                    models.UniqueConstraint(fields=("kind", "subject"), name="standing_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="Channel",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=80)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("email", "email"),
                            ("slack", "slack"),
                            ("teams", "teams"),
                            ("webhook", "webhook"),
                        ],
                        max_length=8,
                    ),
                ),
                ("sealed", models.TextField()),
                ("shown", models.CharField(max_length=254)),
                ("kinds", models.JSONField(default=list)),
                (
                    "cadence",
                    models.CharField(
                        choices=[
                            ("at once", "at once"),
                            ("hourly", "hourly"),
                            ("daily", "daily"),
                            ("weekly", "weekly"),
                        ],
                        default="at once",
                        max_length=8,
                    ),
                ),
                ("at", models.TimeField(default="08:00")),
                ("weekday", models.PositiveSmallIntegerField(default=0)),
                ("quiet_from", models.TimeField(blank=True, null=True)),
                ("quiet_to", models.TimeField(blank=True, null=True)),
                ("active", models.BooleanField(default=True)),
                ("created_by", models.CharField(max_length=150)),
                ("created_at", models.DateTimeField()),
                (
                    "owner",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="channels",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="channels",
                        to="accounts.team",
                    ),
                ),
            ],
            options={
                "ordering": ["name", "pk"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("owner__isnull", True), ("team__isnull", True), _connector="OR"
                        ),
                        name="channel_one_owner",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("weekday__lte", 6)), name="channel_weekday"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("quiet_from__isnull", True), ("quiet_to__isnull", True)),
                            models.Q(("quiet_from__isnull", False), ("quiet_to__isnull", False)),
                            _connector="OR",
                        ),
                        name="channel_quiet_hours_whole",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Delivery",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("queued", "Queued"),
                            ("sent", "Sent"),
                            ("muted", "Muted"),
                            ("given up", "Given Up"),
                        ],
                        default="queued",
                        max_length=8,
                    ),
                ),
                ("due_at", models.DateTimeField()),
                ("failures", models.PositiveSmallIntegerField(default=0)),
                ("error", models.CharField(blank=True, max_length=500)),
                ("sent_at", models.DateTimeField(blank=True, null=True)),
                ("lease", models.CharField(blank=True, max_length=32)),
                ("lease_until", models.DateTimeField(blank=True, null=True)),
                (
                    "alert",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="deliveries",
                        to="alerts.alert",
                    ),
                ),
                (
                    "channel",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="deliveries",
                        to="alerts.channel",
                    ),
                ),
            ],
            options={
                "ordering": ["-due_at", "-pk"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("state", "queued")),
                        fields=["due_at", "id"],
                        name="delivery_due",
                    ),
                    models.Index(fields=["channel", "-id"], name="delivery_of_channel"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("alert", "channel"), name="delivery_once"),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("state", "sent"), ("sent_at__isnull", True), _connector="XOR"
                        ),
                        name="delivery_sent_at",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="IdleAnswer",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("subject", models.CharField(max_length=600)),
                (
                    "choice",
                    models.CharField(
                        choices=[("keep", "keep"), ("release", "release")], max_length=8
                    ),
                ),
                ("person", models.CharField(max_length=150)),
                ("at", models.DateTimeField()),
                ("reason", models.CharField(blank=True, max_length=500)),
                ("until", models.DateTimeField(blank=True, null=True)),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="accounts.team"
                    ),
                ),
            ],
            options={
                "ordering": ["-at", "-pk"],
                "indexes": [
                    models.Index(fields=["subject", "-at", "-id"], name="idle_answer_of_subject")
                ],
            },
        ),
        migrations.CreateModel(
            name="Mute",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("budget", "budget"),
                            ("quota", "quota"),
                            ("idle", "idle"),
                            ("wait", "wait"),
                            ("data gap", "data gap"),
                            ("drift", "drift"),
                            ("request", "request"),
                            ("revert", "revert"),
                        ],
                        max_length=8,
                    ),
                ),
                ("subject", models.CharField(blank=True, max_length=600)),
                ("start", models.DateTimeField()),
                ("end", models.DateTimeField()),
                ("why", models.CharField(blank=True, max_length=500)),
                ("by", models.CharField(max_length=150)),
                (
                    "channel",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="mutes",
                        to="alerts.channel",
                    ),
                ),
            ],
            options={
                "ordering": ["-end", "pk"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("end__gt", models.F("start"))), name="mute_forward"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="ReadMarker",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("budget", "budget"),
                            ("quota", "quota"),
                            ("idle", "idle"),
                            ("wait", "wait"),
                            ("data gap", "data gap"),
                            ("drift", "drift"),
                            ("request", "request"),
                            ("revert", "revert"),
                        ],
                        max_length=8,
                    ),
                ),
                ("subject", models.CharField(blank=True, max_length=600)),
                ("up_to", models.BigIntegerField()),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="read_markers",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("user", "kind", "subject"), name="read_marker_once"
                    )
                ],
            },
        ),
    ]
