import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("accounts", "0001_tables"),
        ("clusters", "0001_tables"),
    ]

    operations = [
        migrations.CreateModel(
            name="AuditCheck",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("at", models.DateTimeField()),
                ("holds", models.BooleanField()),
                ("words", models.TextField()),
                ("number", models.PositiveBigIntegerField(default=0)),
                ("digest", models.CharField(blank=True, max_length=64)),
                ("held_at", models.DateTimeField(blank=True, null=True)),
            ],
        ),
        migrations.CreateModel(
            name="ChangeRequest",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "source",
                    models.CharField(
                        choices=[
                            ("ResourceQuota", "ResourceQuota"),
                            ("ClusterQueue", "ClusterQueue"),
                            ("Queue", "Queue"),
                        ],
                        max_length=16,
                    ),
                ),
                ("namespace", models.CharField(blank=True, max_length=253)),
                ("name", models.CharField(max_length=253)),
                ("key", models.CharField(max_length=530)),
                ("before", models.CharField(max_length=40)),
                ("after", models.CharField(max_length=40)),
                ("tiers", models.JSONField(default=list)),
                ("reason", models.TextField()),
                ("needed_by", models.DateTimeField(blank=True, null=True)),
                ("until", models.DateTimeField(blank=True, null=True)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("draft", "draft"),
                            ("submitted", "submitted"),
                            ("in review", "in review"),
                            ("changes asked", "changes asked"),
                            ("approved", "approved"),
                            ("rejected", "rejected"),
                            ("withdrawn", "withdrawn"),
                            ("applying", "applying"),
                            ("applied", "applied"),
                            ("failed", "failed"),
                            ("reverting", "reverting"),
                            ("reverted", "reverted"),
                            ("expired", "expired"),
                        ],
                        default="draft",
                        max_length=16,
                    ),
                ),
                ("version", models.PositiveIntegerField(default=1)),
                ("authors", models.JSONField(default=list)),
                ("approvals", models.JSONField(default=list)),
                ("approvals_needed", models.PositiveSmallIntegerField(default=1)),
                ("by_rule", models.BooleanField(default=False)),
                ("reviewer", models.CharField(blank=True, max_length=150)),
                ("created_at", models.DateTimeField()),
                ("changed_at", models.DateTimeField()),
                ("changed_by", models.CharField(max_length=150)),
                ("state_since", models.DateTimeField(blank=True, null=True)),
                ("state_by", models.CharField(blank=True, max_length=150)),
                ("submitted_at", models.DateTimeField(blank=True, null=True)),
                ("decided_at", models.DateTimeField(blank=True, null=True)),
                ("applied_at", models.DateTimeField(blank=True, null=True)),
                ("reverts_at", models.DateTimeField(blank=True, null=True)),
                ("announced", models.PositiveSmallIntegerField(default=0)),
                ("outcome", models.TextField(blank=True)),
                ("evidence", models.JSONField(default=dict)),
                ("preview", models.JSONField(default=dict)),
                ("ruling", models.JSONField(default=dict)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, to="clusters.cluster"
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, to="accounts.team"
                    ),
                ),
            ],
            options={
                "ordering": ["-changed_at", "-pk"],
                "indexes": [
                    models.Index(fields=["state", "-changed_at", "-id"], name="change_in_state"),
                    models.Index(fields=["team", "-changed_at", "-id"], name="change_of_team"),
                    models.Index(fields=["-changed_at", "-id"], name="change_latest"),
                    models.Index(fields=["reverts_at"], name="change_reverts"),
                    models.Index(
                        fields=["cluster", "source", "namespace", "name", "key", "applied_at"],
                        name="change_of_target",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(
                            (
                                "state__in",
                                [
                                    "applying",
                                    "approved",
                                    "changes asked",
                                    "failed",
                                    "in review",
                                    "submitted",
                                ],
                            )
                        ),
                        fields=("cluster", "source", "namespace", "name", "key"),
                        name="change_open_once",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("state__in", ["applying", "reverting"])),
                        fields=("cluster", "source", "namespace", "name", "key"),
                        name="change_written_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "state__in",
                                [
                                    "draft",
                                    "submitted",
                                    "in review",
                                    "changes asked",
                                    "approved",
                                    "rejected",
                                    "withdrawn",
                                    "applying",
                                    "applied",
                                    "failed",
                                    "reverting",
                                    "reverted",
                                    "expired",
                                ],
                            )
                        ),
                        name="change_state_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("before", models.F("after")), _negated=True),
                        name="change_changes",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Author",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("username", models.CharField(max_length=150)),
                (
                    "request",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="written_by",
                        to="quota_requests.changerequest",
                    ),
                ),
            ],
            options={
                "ordering": ["request", "username"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("username", "request"), name="change_author_once"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Comment",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("at", models.DateTimeField()),
                ("author", models.CharField(max_length=150)),
                ("text", models.TextField()),
                ("offer", models.CharField(blank=True, max_length=40)),
                (
                    "request",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="comments",
                        to="quota_requests.changerequest",
                    ),
                ),
            ],
            options={
                "ordering": ["request", "at", "pk"],
            },
        ),
        migrations.CreateModel(
            name="DriftInterval",
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
                            ("changed", "changed"),
                            ("key gone", "key gone"),
                            ("object gone", "object gone"),
                        ],
                        max_length=12,
                    ),
                ),
                ("approved", models.CharField(max_length=40)),
                ("live", models.CharField(blank=True, max_length=40)),
                ("sentence", models.TextField()),
                ("found_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("accepted_by", models.CharField(blank=True, max_length=150)),
                (
                    "request",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="drifts",
                        to="quota_requests.changerequest",
                    ),
                ),
            ],
            options={
                "ordering": ["-found_at", "-pk"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at__isnull", True)),
                        fields=("request",),
                        name="drift_open_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("ended_at__isnull", True),
                            ("ended_at__gte", models.F("found_at")),
                            _connector="OR",
                        ),
                        name="drift_forward",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Execution",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "order",
                    models.CharField(
                        choices=[("apply", "apply"), ("revert", "revert")], max_length=6
                    ),
                ),
                (
                    "mode",
                    models.CharField(
                        choices=[("direct", "direct"), ("gitops", "gitops")], max_length=6
                    ),
                ),
                ("reviewed", models.CharField(max_length=40)),
                ("wanted", models.CharField(max_length=40)),
                ("confirmed", models.JSONField(default=list)),
                ("patch_file", models.JSONField(default=dict)),
                ("started_by", models.CharField(max_length=150)),
                ("started_at", models.DateTimeField()),
                (
                    "mark",
                    models.CharField(
                        choices=[
                            ("none", "none"),
                            ("prepared", "prepared"),
                            ("rehearsed", "rehearsed"),
                            ("sending", "sending"),
                            ("patched", "patched"),
                            ("done", "done"),
                        ],
                        default="none",
                        max_length=9,
                    ),
                ),
                ("sent", models.PositiveIntegerField(default=0)),
                ("first_sent_at", models.DateTimeField(blank=True, null=True)),
                ("doubt_until", models.DateTimeField(blank=True, null=True)),
                ("failures", models.PositiveIntegerField(default=0)),
                ("refusal", models.TextField(blank=True)),
                ("sentence", models.TextField(blank=True)),
                ("detail", models.TextField(blank=True)),
                ("next_at", models.DateTimeField()),
                ("lease", models.CharField(blank=True, max_length=32)),
                ("lease_until", models.DateTimeField(blank=True, null=True)),
                ("before_raw", models.JSONField(blank=True, null=True)),
                ("after_raw", models.JSONField(blank=True, null=True)),
                ("end", models.CharField(blank=True, max_length=16)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("written", models.BooleanField(default=False)),
                ("drifted", models.BooleanField(default=False)),
                (
                    "request",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="executions",
                        to="quota_requests.changerequest",
                    ),
                ),
            ],
            options={
                "ordering": ["request", "started_at", "pk"],
                "indexes": [models.Index(fields=["ended_at", "next_at"], name="execution_due")],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at__isnull", True)),
                        fields=("request",),
                        name="execution_open_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("end", ""), ("ended_at__isnull", False), _connector="XOR"
                        ),
                        name="execution_ends_with_a_time",
                    ),
                ],
            },
        ),
    ]
