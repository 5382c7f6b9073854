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
            name="QuotaKey",
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
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "ordering": ["cluster", "source", "namespace", "name", "key"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "source", "namespace", "name", "key"),
                        name="quota_key_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="QuotaKeyHour",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("hour", models.DateTimeField()),
                ("seconds", models.FloatField()),
                ("hard", models.FloatField()),
                ("used", models.FloatField(null=True)),
                ("held", models.FloatField(null=True)),
                ("pending", models.FloatField(null=True)),
                ("suppressed", models.FloatField(null=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="clusters.cluster",
                    ),
                ),
                (
                    "key",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="quotas.quotakey",
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="accounts.team",
                    ),
                ),
            ],
            options={
                "ordering": ["hour", "key"],
                "indexes": [models.Index(fields=["cluster", "hour"], name="quota_key_hour_hour")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("key", "hour", "team"), name="quota_key_hour_of_team"
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("team__isnull", True)),
                        fields=("key", "hour"),
                        name="quota_key_hour_of_several",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Budget",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("valid_from", models.DateTimeField()),
                ("valid_to", models.DateTimeField(blank=True, null=True)),
                ("period", models.CharField(max_length=8)),
                ("gpu_hours", models.FloatField(blank=True, null=True)),
                (
                    "money",
                    models.DecimalField(blank=True, decimal_places=8, max_digits=20, null=True),
                ),
                ("currency", models.CharField(blank=True, max_length=3)),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="accounts.team"
                    ),
                ),
            ],
            options={
                "ordering": ["team", "period", "valid_from", "pk"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("gpu_hours__isnull", True), ("money__isnull", True), _connector="XOR"
                        ),
                        name="budget_hours_or_money",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("money__isnull", True)),
                        fields=("team", "period", "valid_from"),
                        name="budget_of_hours_once",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("money__isnull", False)),
                        fields=("team", "period", "currency", "valid_from"),
                        name="budget_of_money_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("valid_to__isnull", True),
                            ("valid_to__gt", models.F("valid_from")),
                            _connector="OR",
                        ),
                        name="budget_ends_after_start",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="BudgetAlert",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("unit", models.CharField(max_length=9)),
                ("period", models.CharField(max_length=8)),
                ("period_start", models.DateTimeField()),
                ("period_end", models.DateTimeField()),
                (
                    "kind",
                    models.CharField(
                        choices=[("used", "used"), ("projected", "projected")], max_length=9
                    ),
                ),
                ("threshold", models.FloatField()),
                ("at", models.DateTimeField()),
                ("used", models.FloatField()),
                ("allowance", models.FloatField()),
                ("exhausted_at", models.DateTimeField(blank=True, null=True)),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="accounts.team"
                    ),
                ),
            ],
            options={
                "ordering": ["-at", "pk"],
                "indexes": [models.Index(fields=["-at"], name="budget_alert_at")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("team", "unit", "period", "period_start", "kind", "threshold"),
                        name="budget_alert_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Entitlement",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("valid_from", models.DateTimeField()),
                ("valid_to", models.DateTimeField(blank=True, null=True)),
                ("gpus", models.FloatField()),
                ("weight", models.FloatField()),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="accounts.team"
                    ),
                ),
                (
                    "tier",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="clusters.tier"
                    ),
                ),
            ],
            options={
                "ordering": ["team", "tier", "valid_from"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("team", "tier", "valid_from"), name="entitlement_once"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("gpus__gte", 0)), name="entitlement_not_negative"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("valid_to__isnull", True),
                            ("valid_to__gt", models.F("valid_from")),
                            _connector="OR",
                        ),
                        name="entitlement_ends_after_start",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="QuotaHour",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("hour", models.DateTimeField()),
                ("collected_at", models.DateTimeField()),
                ("pod_revision", models.PositiveIntegerField(db_default=0, default=0)),
                ("keys", models.PositiveIntegerField(default=0)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "ordering": ["cluster", "hour"],
                "constraints": [
                    models.UniqueConstraint(fields=("cluster", "hour"), name="quota_hour_once")
                ],
            },
        ),
    ]
