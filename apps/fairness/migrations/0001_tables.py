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
            name="FairnessWindow",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("hour", models.DateTimeField(unique=True)),
                ("facts", models.CharField(max_length=64)),
                ("waits", models.CharField(max_length=64)),
                ("entitlements", models.CharField(blank=True, default="", max_length=64)),
                ("watch", models.CharField(blank=True, default="", max_length=64)),
                ("computed_at", models.DateTimeField()),
            ],
            options={
                "ordering": ["-hour"],
            },
        ),
        migrations.CreateModel(
            name="RecomputeCursor",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("at", models.DateTimeField()),
                ("whole_at", models.DateTimeField()),
                ("wait_rows", models.BigIntegerField(default=0)),
                ("entitlements", models.CharField(blank=True, default="", max_length=64)),
            ],
        ),
        migrations.CreateModel(
            name="FairnessDay",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("day", models.DateField(unique=True)),
                ("start", models.DateTimeField()),
                ("end", models.DateTimeField()),
                ("rolled", models.BooleanField(default=False)),
                ("pruned", models.BooleanField(default=False)),
                ("waits", models.CharField(blank=True, default="", max_length=64)),
                ("held", models.JSONField(default=dict)),
            ],
            options={
                "ordering": ["-day"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("end__gt", models.F("start"))), name="fair_date_forward"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="LoanDay",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("amount", models.BigIntegerField()),
                ("day", models.DateField()),
                (
                    "borrower",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="accounts.team",
                    ),
                ),
                (
                    "lender",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="accounts.team",
                    ),
                ),
                (
                    "tier",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="clusters.tier",
                    ),
                ),
            ],
            options={
                "ordering": ["day", "pk"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("tier", "day", "lender", "borrower"), name="fair_loan_day_once"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="LoanHour",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("amount", models.BigIntegerField()),
                ("hour", models.DateTimeField()),
                (
                    "borrower",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="accounts.team",
                    ),
                ),
                (
                    "lender",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="accounts.team",
                    ),
                ),
                (
                    "tier",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="clusters.tier",
                    ),
                ),
            ],
            options={
                "ordering": ["hour", "pk"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("tier", "hour", "lender", "borrower"), name="fair_loan_once"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="TeamFairnessDay",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("entitlement", models.BigIntegerField(default=0)),
                ("weight", models.BigIntegerField(default=0)),
                ("demand", models.BigIntegerField(default=0)),
                ("fair_share", models.BigIntegerField(default=0)),
                ("allocated", models.BigIntegerField(default=0)),
                ("borrowed", models.BigIntegerField(default=0)),
                ("lent", models.BigIntegerField(default=0)),
                ("denied", models.BigIntegerField(default=0)),
                ("from_pool", models.BigIntegerField(default=0)),
                ("overdrawn", models.BigIntegerField(default=0)),
                ("idle", models.BigIntegerField(default=0)),
                ("day", models.DateField()),
                (
                    "team",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="accounts.team",
                    ),
                ),
                (
                    "tier",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="clusters.tier",
                    ),
                ),
            ],
            options={
                "ordering": ["day", "pk"],
                "constraints": [
                    models.UniqueConstraint(fields=("tier", "day", "team"), name="fair_day_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="TeamFairnessHour",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("entitlement", models.BigIntegerField(default=0)),
                ("weight", models.BigIntegerField(default=0)),
                ("demand", models.BigIntegerField(default=0)),
                ("fair_share", models.BigIntegerField(default=0)),
                ("allocated", models.BigIntegerField(default=0)),
                ("borrowed", models.BigIntegerField(default=0)),
                ("lent", models.BigIntegerField(default=0)),
                ("denied", models.BigIntegerField(default=0)),
                ("from_pool", models.BigIntegerField(default=0)),
                ("overdrawn", models.BigIntegerField(default=0)),
                ("idle", models.BigIntegerField(default=0)),
                ("hour", models.DateTimeField()),
                (
                    "team",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="accounts.team",
                    ),
                ),
                (
                    "tier",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="clusters.tier",
                    ),
                ),
            ],
            options={
                "ordering": ["hour", "pk"],
                "constraints": [
                    models.UniqueConstraint(fields=("tier", "hour", "team"), name="fair_hour_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="TierFairnessDay",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("capacity", models.BigIntegerField(default=0)),
                ("from_pool", models.BigIntegerField(default=0)),
                ("overdrawn", models.BigIntegerField(default=0)),
                ("borrowable", models.BigIntegerField(default=0)),
                ("day", models.DateField()),
                ("hours", models.PositiveIntegerField()),
                ("hours_missing", models.PositiveIntegerField()),
                ("hours_partial", models.PositiveIntegerField()),
                ("hours_watched", models.PositiveIntegerField()),
                (
                    "tier",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="clusters.tier",
                    ),
                ),
            ],
            options={
                "ordering": ["day", "pk"],
                "constraints": [
                    models.UniqueConstraint(fields=("tier", "day"), name="fair_tier_day_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="TierFairnessHour",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("capacity", models.BigIntegerField(default=0)),
                ("from_pool", models.BigIntegerField(default=0)),
                ("overdrawn", models.BigIntegerField(default=0)),
                ("borrowable", models.BigIntegerField(default=0)),
                ("hour", models.DateTimeField()),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("complete", "complete"),
                            ("partial", "partial"),
                            ("missing", "missing"),
                        ],
                        max_length=10,
                    ),
                ),
                ("watched", models.BooleanField()),
                (
                    "tier",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="clusters.tier",
                    ),
                ),
            ],
            options={
                "ordering": ["hour", "pk"],
                "constraints": [
                    models.UniqueConstraint(fields=("tier", "hour"), name="fair_tier_hour_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="TierTeamBlob",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "span",
                    models.CharField(
                        choices=[("hour", "hour"), ("day", "day"), ("week", "week")], max_length=4
                    ),
                ),
                ("start", models.DateTimeField()),
                ("teams", models.BinaryField()),
                (
                    "tier",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="clusters.tier",
                    ),
                ),
            ],
            options={
                "ordering": ["start", "pk"],
                "constraints": [
                    models.UniqueConstraint(fields=("span", "start", "tier"), name="fair_pack_once")
                ],
            },
        ),
    ]
