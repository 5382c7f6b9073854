import django.db.models.deletion
import django.db.models.functions.comparison
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("accounts", "0001_tables"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("clusters", "0001_tables"),
    ]

    operations = [
        migrations.CreateModel(
            name="ClosedPeriod",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("month", models.DateField()),
                ("start", models.DateTimeField()),
                ("end", models.DateTimeField()),
                ("time_zone", models.CharField(max_length=64)),
                ("currency", models.CharField(max_length=3)),
                (
                    "basis",
                    models.CharField(
                        choices=[("allocated", "allocated"), ("used", "used")], max_length=10
                    ),
                ),
                (
                    "policy",
                    models.CharField(
                        choices=[
                            ("platform", "platform"),
                            ("entitlement", "entitlement"),
                            ("use", "use"),
                        ],
                        max_length=12,
                    ),
                ),
                ("price_book", models.CharField(max_length=12)),
                ("row_count", models.PositiveBigIntegerField(default=0)),
                ("rows_sha256", models.CharField(max_length=64)),
                ("files", models.JSONField(default=dict)),
                ("cost_centers", models.JSONField(default=dict)),
                ("forced", models.TextField(blank=True)),
                ("closed_at", models.DateTimeField()),
                ("closed_by", models.CharField(max_length=150)),
                ("reopened_at", models.DateTimeField(blank=True, null=True)),
                ("reopened_by", models.CharField(blank=True, max_length=150)),
                ("reopen_reason", models.TextField(blank=True)),
            ],
            options={
                "ordering": ["-month", "-closed_at", "pk"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("reopened_at__isnull", True)),
                        fields=("month",),
                        name="period_closed_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("end__gt", models.F("start"))), name="period_forward"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("reopened_at__isnull", True),
                            models.Q(("reopen_reason", ""), _negated=True),
                            _connector="OR",
                        ),
                        name="period_reopened_for_a_reason",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="MonthlyMail",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("month", models.DateField()),
                ("recipient", models.CharField(max_length=254)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("waiting", "waiting"),
                            ("due", "due"),
                            ("sent", "sent"),
                            ("failed", "failed"),
                        ],
                        default="due",
                        max_length=8,
                    ),
                ),
                ("attempts", models.PositiveSmallIntegerField(default=0)),
                ("next_at", models.DateTimeField()),
                ("lease_until", models.DateTimeField(blank=True, null=True)),
                ("sent_at", models.DateTimeField(blank=True, null=True)),
                ("error", models.TextField(blank=True)),
            ],
            options={
                "ordering": ["-month", "recipient"],
                "constraints": [
                    models.UniqueConstraint(fields=("month", "recipient"), name="monthly_mail_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="RecommendationRun",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("first", models.DateField(null=True)),
                ("day", models.DateField()),
                ("at", models.DateTimeField()),
                ("collected_at", models.DateTimeField(null=True)),
                ("found", models.PositiveIntegerField(default=0)),
                (
                    "cluster",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "ordering": ["cluster"],
            },
        ),
        migrations.CreateModel(
            name="ClosedFile",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "format",
                    models.CharField(
                        choices=[
                            ("csv", "csv"),
                            ("xlsx", "xlsx"),
                            ("parquet", "parquet"),
                            ("focus-csv", "focus-csv"),
                            ("focus-parquet", "focus-parquet"),
                        ],
                        max_length=16,
                    ),
                ),
                ("sha256", models.CharField(max_length=64)),
                ("size", models.PositiveBigIntegerField(blank=True, null=True)),
                ("kept_at", models.DateTimeField(blank=True, null=True)),
                ("remade_at", models.DateTimeField(blank=True, null=True)),
                ("remade_sha256", models.CharField(blank=True, max_length=64)),
                (
                    "period",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="costs.closedperiod"
                    ),
                ),
            ],
            options={
                "ordering": ["period", "format"],
                "constraints": [
                    models.UniqueConstraint(fields=("period", "format"), name="closed_file_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="ClosedAmount",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("day", models.DateField()),
                ("capacity_type", models.CharField(max_length=10)),
                (
                    "cause",
                    models.CharField(
                        choices=[
                            ("busy", "busy"),
                            ("unmeasured", "unmeasured"),
                            ("underused", "underused"),
                            ("idle", "idle"),
                            ("not_running", "not_running"),
                            ("unallocated", "unallocated"),
                            ("unhealthy", "unhealthy"),
                            ("energy", "energy"),
                        ],
                        max_length=12,
                    ),
                ),
                ("currency", models.CharField(blank=True, max_length=3)),
                ("gpu_hours", models.BigIntegerField()),
                ("cost", models.BigIntegerField()),
                ("unpriced", models.BigIntegerField()),
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
                    "gpu_model",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="clusters.gpumodel",
                    ),
                ),
                (
                    "namespace",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="clusters.namespace",
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
                (
                    "tier",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="clusters.tier",
                    ),
                ),
                (
                    "workload",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="clusters.workload",
                    ),
                ),
                (
                    "period",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, to="costs.closedperiod"
                    ),
                ),
            ],
            options={
                "ordering": ["period", "day", "pk"],
                "indexes": [
                    models.Index(fields=["period", "cluster", "day"], name="closed_amount_day")
                ],
            },
        ),
        migrations.CreateModel(
            name="Adjustment",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("day", models.DateField()),
                ("capacity_type", models.CharField(max_length=10)),
                (
                    "cause",
                    models.CharField(
                        choices=[
                            ("busy", "busy"),
                            ("unmeasured", "unmeasured"),
                            ("underused", "underused"),
                            ("idle", "idle"),
                            ("not_running", "not_running"),
                            ("unallocated", "unallocated"),
                            ("unhealthy", "unhealthy"),
                            ("energy", "energy"),
                        ],
                        max_length=12,
                    ),
                ),
                ("currency", models.CharField(blank=True, max_length=3)),
                ("gpu_hours", models.BigIntegerField()),
                ("cost", models.BigIntegerField()),
                ("unpriced", models.BigIntegerField()),
                ("booked_on", models.DateField()),
                ("booked_at", models.DateTimeField()),
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
                    "gpu_model",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="clusters.gpumodel",
                    ),
                ),
                (
                    "namespace",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="clusters.namespace",
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
                (
                    "tier",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="clusters.tier",
                    ),
                ),
                (
                    "workload",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="clusters.workload",
                    ),
                ),
                (
                    "period",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, to="costs.closedperiod"
                    ),
                ),
            ],
            options={
                "ordering": ["booked_on", "pk"],
                "indexes": [
                    models.Index(fields=["booked_on"], name="adjustment_booked"),
                    models.Index(fields=["period", "cluster", "day"], name="adjustment_day"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Export",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "subject",
                    models.CharField(
                        choices=[("month", "month"), ("window", "window")], max_length=8
                    ),
                ),
                (
                    "format",
                    models.CharField(
                        choices=[
                            ("csv", "csv"),
                            ("xlsx", "xlsx"),
                            ("parquet", "parquet"),
                            ("focus-csv", "focus-csv"),
                            ("focus-parquet", "focus-parquet"),
                        ],
                        max_length=16,
                    ),
                ),
                ("question", models.JSONField()),
                ("everything", models.BooleanField(default=False)),
                ("team_ids", models.JSONField(default=list)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("queued", "queued"),
                            ("running", "running"),
                            ("done", "done"),
                            ("failed", "failed"),
                            ("expired", "expired"),
                        ],
                        default="queued",
                        max_length=8,
                    ),
                ),
                ("attempts", models.PositiveSmallIntegerField(default=0)),
                ("lease", models.CharField(blank=True, max_length=32)),
                ("lease_until", models.DateTimeField(blank=True, null=True)),
                ("rows_written", models.PositiveBigIntegerField(default=0)),
                ("rows_expected", models.PositiveBigIntegerField(blank=True, null=True)),
                ("size", models.PositiveBigIntegerField(blank=True, null=True)),
                ("sha256", models.CharField(blank=True, max_length=64)),
                ("file_name", models.CharField(blank=True, max_length=250)),
                ("path", models.CharField(blank=True, max_length=120)),
                ("error", models.TextField(blank=True)),
                ("asked_at", models.DateTimeField()),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                (
                    "asked_by",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "ordering": ["-asked_at", "-pk"],
                "indexes": [
                    models.Index(fields=["asked_by", "-asked_at"], name="export_of_person"),
                    models.Index(fields=["state", "lease_until"], name="export_state"),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("state", "done"), _negated=True),
                            models.Q(
                                models.Q(("sha256", ""), _negated=True),
                                models.Q(("path", ""), _negated=True),
                                ("size__isnull", False),
                            ),
                            _connector="OR",
                        ),
                        name="export_done_has_file",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("state", "failed"), _negated=True),
                            models.Q(("error", ""), _negated=True),
                            _connector="OR",
                        ),
                        name="export_failed_for_a_reason",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="PoolCostDay",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "capacity_type",
                    models.CharField(
                        choices=[
                            ("on-demand", "on-demand"),
                            ("spot", "spot"),
                            ("reserved", "reserved"),
                            ("unknown", "unknown"),
                        ],
                        max_length=10,
                    ),
                ),
                ("price", models.BigIntegerField(null=True)),
                ("list_price", models.BigIntegerField(null=True)),
                ("currency", models.CharField(blank=True, max_length=3)),
                ("busy", models.BigIntegerField(default=0)),
                ("unmeasured", models.BigIntegerField(default=0)),
                ("underused", models.BigIntegerField(default=0)),
                ("idle", models.BigIntegerField(default=0)),
                ("not_running", models.BigIntegerField(default=0)),
                ("cost_busy", models.BigIntegerField(default=0)),
                ("cost_unmeasured", models.BigIntegerField(default=0)),
                ("cost_underused", models.BigIntegerField(default=0)),
                ("cost_idle", models.BigIntegerField(default=0)),
                ("cost_not_running", models.BigIntegerField(default=0)),
                ("energy_mwh", models.BigIntegerField(default=0)),
                ("cost_energy", models.BigIntegerField(default=0)),
                ("unallocated", models.BigIntegerField(default=0)),
                ("unhealthy", models.BigIntegerField(default=0)),
                ("cost_unallocated", models.BigIntegerField(default=0)),
                ("cost_unhealthy", models.BigIntegerField(default=0)),
                ("burst", models.BigIntegerField(default=0)),
                ("free_energy_mwh", models.BigIntegerField(default=0)),
                ("cost_free_energy", models.BigIntegerField(default=0)),
                ("day", models.DateField()),
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
                    "gpu_model",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="clusters.gpumodel",
                    ),
                ),
                (
                    "tier",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="clusters.tier",
                    ),
                ),
            ],
            options={
                "ordering": ["day", "pk"],
                "indexes": [models.Index(fields=["day", "cluster"], name="pool_cost_day")],
            },
        ),
        migrations.CreateModel(
            name="PoolCostHour",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "capacity_type",
                    models.CharField(
                        choices=[
                            ("on-demand", "on-demand"),
                            ("spot", "spot"),
                            ("reserved", "reserved"),
                            ("unknown", "unknown"),
                        ],
                        max_length=10,
                    ),
                ),
                ("price", models.BigIntegerField(null=True)),
                ("list_price", models.BigIntegerField(null=True)),
                ("currency", models.CharField(blank=True, max_length=3)),
                ("busy", models.BigIntegerField(default=0)),
                ("unmeasured", models.BigIntegerField(default=0)),
                ("underused", models.BigIntegerField(default=0)),
                ("idle", models.BigIntegerField(default=0)),
                ("not_running", models.BigIntegerField(default=0)),
                ("cost_busy", models.BigIntegerField(default=0)),
                ("cost_unmeasured", models.BigIntegerField(default=0)),
                ("cost_underused", models.BigIntegerField(default=0)),
                ("cost_idle", models.BigIntegerField(default=0)),
                ("cost_not_running", models.BigIntegerField(default=0)),
                ("energy_mwh", models.BigIntegerField(default=0)),
                ("cost_energy", models.BigIntegerField(default=0)),
                ("unallocated", models.BigIntegerField(default=0)),
                ("unhealthy", models.BigIntegerField(default=0)),
                ("cost_unallocated", models.BigIntegerField(default=0)),
                ("cost_unhealthy", models.BigIntegerField(default=0)),
                ("burst", models.BigIntegerField(default=0)),
                ("free_energy_mwh", models.BigIntegerField(default=0)),
                ("cost_free_energy", models.BigIntegerField(default=0)),
                ("hour", models.DateTimeField()),
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
                    "gpu_model",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="clusters.gpumodel",
                    ),
                ),
                (
                    "tier",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="clusters.tier",
                    ),
                ),
            ],
            options={
                "ordering": ["hour", "pk"],
                "indexes": [models.Index(fields=["cluster", "hour"], name="pool_cost_hour")],
            },
        ),
        migrations.CreateModel(
            name="Price",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("valid_from", models.DateTimeField()),
                ("valid_to", models.DateTimeField(blank=True, null=True)),
                ("gpu_model", models.CharField(max_length=120)),
                (
                    "capacity_type",
                    models.CharField(
                        choices=[
                            ("on-demand", "on-demand"),
                            ("spot", "spot"),
                            ("reserved", "reserved"),
                            ("owned", "owned"),
                            ("unknown", "unknown"),
                        ],
                        max_length=10,
                    ),
                ),
                ("per_gpu_hour", models.DecimalField(decimal_places=8, max_digits=20)),
                ("currency", models.CharField(max_length=3)),
                ("discount", models.DecimalField(decimal_places=8, default=0, max_digits=9)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("list", "list"),
                            ("negotiated", "negotiated"),
                            ("owned", "owned"),
                        ],
                        default="list",
                        max_length=10,
                    ),
                ),
                ("source", models.CharField(blank=True, max_length=300)),
                ("example", models.BooleanField(default=False)),
                (
                    "per_kwh",
                    models.DecimalField(blank=True, decimal_places=8, max_digits=20, null=True),
                ),
                ("pue", models.DecimalField(decimal_places=8, default=1, max_digits=9)),
                (
                    "cluster",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        to="clusters.cluster",
                    ),
                ),
                (
                    "tier",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        to="clusters.tier",
                    ),
                ),
            ],
            options={
                "ordering": ["gpu_model", "capacity_type", "valid_from", "pk"],
                "constraints": [
                    models.UniqueConstraint(
                        django.db.models.functions.comparison.Coalesce("cluster", 0),
                        django.db.models.functions.comparison.Coalesce("tier", 0),
                        models.F("gpu_model"),
                        models.F("capacity_type"),
                        models.F("valid_from"),
                        name="price_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("per_gpu_hour__gte", 0)), name="price_not_negative"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("discount__gte", 0), ("discount__lte", 1)),
                        name="price_discount_fraction",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("valid_to__isnull", True),
                            ("valid_to__gt", models.F("valid_from")),
                            _connector="OR",
                        ),
                        name="price_ends_after_start",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="PricedHour",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("hour", models.DateTimeField()),
                ("facts_at", models.DateTimeField()),
                ("rates", models.CharField(blank=True, max_length=16)),
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
                    models.UniqueConstraint(fields=("cluster", "hour"), name="priced_hour_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="Recommendation",
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
                            ("fewer-gpus", "fewer-gpus"),
                            ("mig-profile", "mig-profile"),
                            ("shared-tier", "shared-tier"),
                            ("smaller-model", "smaller-model"),
                            ("stop-idle-notebook", "stop-idle-notebook"),
                            ("unused-quota", "unused-quota"),
                            ("mig-layout", "mig-layout"),
                            ("spot", "spot"),
                            ("empty-nodes", "empty-nodes"),
                            ("idle-start", "idle-start"),
                            ("idle-end", "idle-end"),
                            ("idle-timeout", "idle-timeout"),
                            ("scale-to-demand", "scale-to-demand"),
                            ("empty-hours", "empty-hours"),
                            ("lend-quota", "lend-quota"),
                        ],
                        max_length=20,
                    ),
                ),
                ("namespace", models.CharField(blank=True, max_length=253)),
                ("workload", models.CharField(blank=True, max_length=320)),
                ("node", models.CharField(blank=True, max_length=253)),
                ("change", models.TextField()),
                ("patch", models.TextField(blank=True)),
                (
                    "saving_per_month",
                    models.DecimalField(decimal_places=2, max_digits=20, null=True),
                ),
                ("currency", models.CharField(blank=True, max_length=3)),
                (
                    "confidence",
                    models.CharField(
                        choices=[("low", "low"), ("medium", "medium"), ("high", "high")],
                        max_length=6,
                    ),
                ),
                ("reason", models.TextField()),
                ("evidence", models.JSONField(default=dict)),
                ("alternative", models.BooleanField(default=False)),
                ("first_seen", models.DateTimeField()),
                ("last_seen", models.DateTimeField()),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("open", "open"),
                            ("accepted", "accepted"),
                            ("dismissed", "dismissed"),
                            ("done", "done"),
                            ("gone", "gone"),
                        ],
                        default="open",
                        max_length=9,
                    ),
                ),
                ("covers", models.JSONField(default=list)),
                ("decided_by", models.CharField(blank=True, max_length=150)),
                ("decided_at", models.DateTimeField(blank=True, null=True)),
                ("dismiss_reason", models.TextField(blank=True)),
                ("cost_before", models.DecimalField(decimal_places=8, max_digits=28, null=True)),
                ("days_before", models.FloatField(null=True)),
                ("cost_after", models.DecimalField(decimal_places=8, max_digits=28, null=True)),
                ("days_after", models.FloatField(null=True)),
                (
                    "verdict",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("too-early", "too-early"),
                            ("came", "came"),
                            ("partly", "partly"),
                            ("did-not-come", "did-not-come"),
                        ],
                        max_length=12,
                    ),
                ),
                (
                    "saved_per_month",
                    models.DecimalField(decimal_places=2, max_digits=20, null=True),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="clusters.cluster"
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.CASCADE, to="accounts.team"
                    ),
                ),
                (
                    "tier",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.CASCADE, to="clusters.tier"
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
                "indexes": [
                    models.Index(
                        fields=["state", "-saving_per_month"], name="recommendation_state"
                    ),
                    models.Index(fields=["team", "state"], name="recommendation_team"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        models.F("kind"),
                        models.F("cluster"),
                        models.F("namespace"),
                        models.F("workload"),
                        django.db.models.functions.comparison.Coalesce("tier", 0),
                        models.F("node"),
                        name="recommendation_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("state", "dismissed"), _negated=True),
                            models.Q(("dismiss_reason", ""), _negated=True),
                            _connector="OR",
                        ),
                        name="recommendation_dismissed_for_a_reason",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="TeamCostDay",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "capacity_type",
                    models.CharField(
                        choices=[
                            ("on-demand", "on-demand"),
                            ("spot", "spot"),
                            ("reserved", "reserved"),
                            ("unknown", "unknown"),
                        ],
                        max_length=10,
                    ),
                ),
                ("price", models.BigIntegerField(null=True)),
                ("list_price", models.BigIntegerField(null=True)),
                ("currency", models.CharField(blank=True, max_length=3)),
                ("busy", models.BigIntegerField(default=0)),
                ("unmeasured", models.BigIntegerField(default=0)),
                ("underused", models.BigIntegerField(default=0)),
                ("idle", models.BigIntegerField(default=0)),
                ("not_running", models.BigIntegerField(default=0)),
                ("cost_busy", models.BigIntegerField(default=0)),
                ("cost_unmeasured", models.BigIntegerField(default=0)),
                ("cost_underused", models.BigIntegerField(default=0)),
                ("cost_idle", models.BigIntegerField(default=0)),
                ("cost_not_running", models.BigIntegerField(default=0)),
                ("energy_mwh", models.BigIntegerField(default=0)),
                ("cost_energy", models.BigIntegerField(default=0)),
                ("by_entitlement", models.BigIntegerField(default=0)),
                ("by_held", models.BigIntegerField(default=0)),
                ("by_used", models.BigIntegerField(default=0)),
                ("cost_by_entitlement", models.BigIntegerField(default=0)),
                ("cost_by_held", models.BigIntegerField(default=0)),
                ("cost_by_used", models.BigIntegerField(default=0)),
                ("day", models.DateField()),
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
                    "gpu_model",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="clusters.gpumodel",
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="accounts.team",
                    ),
                ),
                (
                    "tier",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="clusters.tier",
                    ),
                ),
            ],
            options={
                "ordering": ["day", "pk"],
                "indexes": [models.Index(fields=["cluster", "day"], name="team_cost_day")],
            },
        ),
        migrations.CreateModel(
            name="TeamCostHour",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "capacity_type",
                    models.CharField(
                        choices=[
                            ("on-demand", "on-demand"),
                            ("spot", "spot"),
                            ("reserved", "reserved"),
                            ("unknown", "unknown"),
                        ],
                        max_length=10,
                    ),
                ),
                ("price", models.BigIntegerField(null=True)),
                ("list_price", models.BigIntegerField(null=True)),
                ("currency", models.CharField(blank=True, max_length=3)),
                ("busy", models.BigIntegerField(default=0)),
                ("unmeasured", models.BigIntegerField(default=0)),
                ("underused", models.BigIntegerField(default=0)),
                ("idle", models.BigIntegerField(default=0)),
                ("not_running", models.BigIntegerField(default=0)),
                ("cost_busy", models.BigIntegerField(default=0)),
                ("cost_unmeasured", models.BigIntegerField(default=0)),
                ("cost_underused", models.BigIntegerField(default=0)),
                ("cost_idle", models.BigIntegerField(default=0)),
                ("cost_not_running", models.BigIntegerField(default=0)),
                ("energy_mwh", models.BigIntegerField(default=0)),
                ("cost_energy", models.BigIntegerField(default=0)),
                ("by_entitlement", models.BigIntegerField(default=0)),
                ("by_held", models.BigIntegerField(default=0)),
                ("by_used", models.BigIntegerField(default=0)),
                ("cost_by_entitlement", models.BigIntegerField(default=0)),
                ("cost_by_held", models.BigIntegerField(default=0)),
                ("cost_by_used", models.BigIntegerField(default=0)),
                ("hour", models.DateTimeField()),
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
                    "gpu_model",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="clusters.gpumodel",
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="accounts.team",
                    ),
                ),
                (
                    "tier",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="clusters.tier",
                    ),
                ),
            ],
            options={
                "ordering": ["hour", "pk"],
                "indexes": [models.Index(fields=["cluster", "hour"], name="team_cost_hour")],
            },
        ),
        migrations.CreateModel(
            name="WasteSum",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("cause", models.CharField(max_length=12)),
                ("reason", models.CharField(max_length=16)),
                ("currency", models.CharField(max_length=3)),
                ("cost", models.BigIntegerField()),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="clusters.cluster"
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.CASCADE, to="accounts.team"
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
                "ordering": ["pk"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("cost__gte", 0)), name="waste_sum_not_negative"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="WorkloadCostDay",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "capacity_type",
                    models.CharField(
                        choices=[
                            ("on-demand", "on-demand"),
                            ("spot", "spot"),
                            ("reserved", "reserved"),
                            ("unknown", "unknown"),
                        ],
                        max_length=10,
                    ),
                ),
                ("price", models.BigIntegerField(null=True)),
                ("list_price", models.BigIntegerField(null=True)),
                ("currency", models.CharField(blank=True, max_length=3)),
                ("busy", models.BigIntegerField(default=0)),
                ("unmeasured", models.BigIntegerField(default=0)),
                ("underused", models.BigIntegerField(default=0)),
                ("idle", models.BigIntegerField(default=0)),
                ("not_running", models.BigIntegerField(default=0)),
                ("cost_busy", models.BigIntegerField(default=0)),
                ("cost_unmeasured", models.BigIntegerField(default=0)),
                ("cost_underused", models.BigIntegerField(default=0)),
                ("cost_idle", models.BigIntegerField(default=0)),
                ("cost_not_running", models.BigIntegerField(default=0)),
                ("energy_mwh", models.BigIntegerField(default=0)),
                ("cost_energy", models.BigIntegerField(default=0)),
                ("day", models.DateField()),
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
                    "gpu_model",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="clusters.gpumodel",
                    ),
                ),
                (
                    "namespace",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="clusters.namespace",
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="accounts.team",
                    ),
                ),
                (
                    "tier",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="clusters.tier",
                    ),
                ),
                (
                    "workload",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="clusters.workload",
                    ),
                ),
            ],
            options={
                "ordering": ["day", "pk"],
                "indexes": [
                    models.Index(fields=["cluster", "day"], name="workload_cost_day"),
                    models.Index(fields=["team", "day"], name="workload_cost_team"),
                ],
            },
        ),
        migrations.CreateModel(
            name="WorkloadCostHour",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "capacity_type",
                    models.CharField(
                        choices=[
                            ("on-demand", "on-demand"),
                            ("spot", "spot"),
                            ("reserved", "reserved"),
                            ("unknown", "unknown"),
                        ],
                        max_length=10,
                    ),
                ),
                ("price", models.BigIntegerField(null=True)),
                ("list_price", models.BigIntegerField(null=True)),
                ("currency", models.CharField(blank=True, max_length=3)),
                ("busy", models.BigIntegerField(default=0)),
                ("unmeasured", models.BigIntegerField(default=0)),
                ("underused", models.BigIntegerField(default=0)),
                ("idle", models.BigIntegerField(default=0)),
                ("not_running", models.BigIntegerField(default=0)),
                ("cost_busy", models.BigIntegerField(default=0)),
                ("cost_unmeasured", models.BigIntegerField(default=0)),
                ("cost_underused", models.BigIntegerField(default=0)),
                ("cost_idle", models.BigIntegerField(default=0)),
                ("cost_not_running", models.BigIntegerField(default=0)),
                ("energy_mwh", models.BigIntegerField(default=0)),
                ("cost_energy", models.BigIntegerField(default=0)),
                ("hour", models.DateTimeField()),
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
                    "gpu_model",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="clusters.gpumodel",
                    ),
                ),
                (
                    "namespace",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="clusters.namespace",
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="accounts.team",
                    ),
                ),
                (
                    "tier",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="clusters.tier",
                    ),
                ),
                (
                    "workload",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="clusters.workload",
                    ),
                ),
            ],
            options={
                "ordering": ["hour", "pk"],
                "indexes": [models.Index(fields=["cluster", "hour"], name="workload_cost_hour")],
            },
        ),
    ]
