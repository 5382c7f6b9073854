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
            name="ExporterSetUp",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("digest", models.CharField(max_length=64)),
                ("profile", models.JSONField(default=dict)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "ordering": ["cluster", "pk"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "digest"), name="exporter_set_up_once"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="CollectionWindow",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("hour", models.DateTimeField()),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("waiting", "waiting"),
                            ("complete", "complete"),
                            ("partial", "partial"),
                            ("failed", "failed"),
                        ],
                        max_length=10,
                    ),
                ),
                ("coverage_ratio", models.FloatField(blank=True, null=True)),
                ("samples", models.BigIntegerField(default=0)),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("partials", models.PositiveIntegerField(default=0)),
                ("error", models.TextField(blank=True)),
                ("findings", models.JSONField(default=dict)),
                ("warnings", models.JSONField(default=list)),
                ("ledger_source", models.CharField(blank=True, max_length=8)),
                ("slots_without_pods", models.PositiveSmallIntegerField(db_default=0, default=0)),
                ("scrape_interval_seconds", models.FloatField(blank=True, null=True)),
                ("activity_metric", models.CharField(blank=True, max_length=80)),
                ("duration_seconds", models.FloatField(blank=True, null=True)),
                ("lease_until", models.DateTimeField(blank=True, null=True)),
                ("attempted_at", models.DateTimeField(blank=True, null=True)),
                ("collected_at", models.DateTimeField(blank=True, null=True)),
                ("withheld", models.BooleanField(db_default=False, default=False)),
                ("evidence", models.JSONField(default=dict)),
                ("again_at", models.DateTimeField(blank=True, null=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="clusters.cluster"
                    ),
                ),
                (
                    "exporters",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        to="usage.exportersetup",
                    ),
                ),
            ],
            options={
                "ordering": ["-hour", "cluster"],
                "indexes": [
                    models.Index(fields=["-hour", "cluster"], name="collection_hour"),
                    models.Index(
                        condition=models.Q(("again_at__isnull", False)),
                        fields=["again_at"],
                        name="collection_again",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("cluster", "hour"), name="collection_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="NodeHour",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("allocated", models.BigIntegerField(default=0)),
                ("not_running", models.BigIntegerField(default=0)),
                ("unmeasured", models.BigIntegerField(default=0)),
                ("idle", models.BigIntegerField(default=0)),
                ("underused", models.BigIntegerField(default=0)),
                ("busy", models.BigIntegerField(default=0)),
                ("burst", models.BigIntegerField(default=0)),
                ("allocated_on_unhealthy", models.BigIntegerField(default=0)),
                ("grade_apportioned", models.BigIntegerField(default=0)),
                ("grade_inferred", models.BigIntegerField(default=0)),
                ("energy_mwh", models.BigIntegerField(default=0)),
                ("memory_peak_mib", models.FloatField(null=True)),
                ("sm_active", models.BigIntegerField(null=True)),
                ("sm_measured", models.BigIntegerField(null=True)),
                ("tensor_active", models.BigIntegerField(null=True)),
                ("tensor_measured", models.BigIntegerField(null=True)),
                ("memory_copy_active", models.BigIntegerField(null=True)),
                ("memory_copy_measured", models.BigIntegerField(null=True)),
                ("capacity", models.BigIntegerField(default=0)),
                ("unhealthy", models.BigIntegerField(default=0)),
                ("unallocated", models.BigIntegerField(default=0)),
                ("stranded", models.BigIntegerField(default=0)),
                ("unattributed", models.BigIntegerField(default=0)),
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
                    "node",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="clusters.node",
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
                "indexes": [models.Index(fields=["cluster", "hour"], name="node_hour_hour")],
            },
        ),
        migrations.CreateModel(
            name="PodHour",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("allocated", models.BigIntegerField(default=0)),
                ("not_running", models.BigIntegerField(default=0)),
                ("unmeasured", models.BigIntegerField(default=0)),
                ("idle", models.BigIntegerField(default=0)),
                ("underused", models.BigIntegerField(default=0)),
                ("busy", models.BigIntegerField(default=0)),
                ("burst", models.BigIntegerField(default=0)),
                ("allocated_on_unhealthy", models.BigIntegerField(default=0)),
                ("grade_apportioned", models.BigIntegerField(default=0)),
                ("grade_inferred", models.BigIntegerField(default=0)),
                ("energy_mwh", models.BigIntegerField(default=0)),
                ("memory_peak_mib", models.FloatField(null=True)),
                ("sm_active", models.BigIntegerField(null=True)),
                ("sm_measured", models.BigIntegerField(null=True)),
                ("tensor_active", models.BigIntegerField(null=True)),
                ("tensor_measured", models.BigIntegerField(null=True)),
                ("memory_copy_active", models.BigIntegerField(null=True)),
                ("memory_copy_measured", models.BigIntegerField(null=True)),
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
                ("hour", models.DateTimeField()),
                ("activity", models.TextField(blank=True, db_default="", default="")),
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
                    "node",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="clusters.node",
                    ),
                ),
                (
                    "pod",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="clusters.pod",
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
                "indexes": [
                    models.Index(fields=["cluster", "hour"], name="pod_hour_hour"),
                    models.Index(fields=["pod", "hour"], name="pod_hour_pod"),
                ],
            },
        ),
        migrations.CreateModel(
            name="QueueHour",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("hour", models.DateTimeField()),
                ("due", models.BooleanField(db_default=True, default=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "ordering": ["-hour", "cluster"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("due", True)),
                        fields=["cluster", "hour"],
                        name="queue_hour_due",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("cluster", "hour"), name="queue_hour_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="QueuePending",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("hour", models.DateTimeField()),
                ("slot", models.DateTimeField()),
                ("namespace", models.CharField(blank=True, max_length=253)),
                ("queue", models.CharField(max_length=253)),
                ("resource", models.CharField(blank=True, max_length=253)),
                ("units", models.FloatField(blank=True, null=True)),
                ("workloads", models.FloatField(blank=True, null=True)),
                ("unit_weight", models.FloatField(default=0.0)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="clusters.cluster"
                    ),
                ),
                (
                    "tier",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        to="clusters.tier",
                    ),
                ),
            ],
            options={
                "ordering": ["slot", "namespace", "queue", "resource"],
                "indexes": [models.Index(fields=["cluster", "hour"], name="queue_pending_hour")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "slot", "namespace", "queue", "resource"),
                        name="queue_pending_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="TeamDay",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("allocated", models.BigIntegerField(default=0)),
                ("not_running", models.BigIntegerField(default=0)),
                ("unmeasured", models.BigIntegerField(default=0)),
                ("idle", models.BigIntegerField(default=0)),
                ("underused", models.BigIntegerField(default=0)),
                ("busy", models.BigIntegerField(default=0)),
                ("burst", models.BigIntegerField(default=0)),
                ("allocated_on_unhealthy", models.BigIntegerField(default=0)),
                ("grade_apportioned", models.BigIntegerField(default=0)),
                ("grade_inferred", models.BigIntegerField(default=0)),
                ("energy_mwh", models.BigIntegerField(default=0)),
                ("memory_peak_mib", models.FloatField(null=True)),
                ("sm_active", models.BigIntegerField(null=True)),
                ("sm_measured", models.BigIntegerField(null=True)),
                ("tensor_active", models.BigIntegerField(null=True)),
                ("tensor_measured", models.BigIntegerField(null=True)),
                ("memory_copy_active", models.BigIntegerField(null=True)),
                ("memory_copy_measured", models.BigIntegerField(null=True)),
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
                "indexes": [models.Index(fields=["cluster", "day"], name="team_day_day")],
            },
        ),
        migrations.CreateModel(
            name="TeamHour",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("allocated", models.BigIntegerField(default=0)),
                ("not_running", models.BigIntegerField(default=0)),
                ("unmeasured", models.BigIntegerField(default=0)),
                ("idle", models.BigIntegerField(default=0)),
                ("underused", models.BigIntegerField(default=0)),
                ("busy", models.BigIntegerField(default=0)),
                ("burst", models.BigIntegerField(default=0)),
                ("allocated_on_unhealthy", models.BigIntegerField(default=0)),
                ("grade_apportioned", models.BigIntegerField(default=0)),
                ("grade_inferred", models.BigIntegerField(default=0)),
                ("energy_mwh", models.BigIntegerField(default=0)),
                ("memory_peak_mib", models.FloatField(null=True)),
                ("sm_active", models.BigIntegerField(null=True)),
                ("sm_measured", models.BigIntegerField(null=True)),
                ("tensor_active", models.BigIntegerField(null=True)),
                ("tensor_measured", models.BigIntegerField(null=True)),
                ("memory_copy_active", models.BigIntegerField(null=True)),
                ("memory_copy_measured", models.BigIntegerField(null=True)),
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
                ("hour", models.DateTimeField()),
                ("allocated_first", models.BigIntegerField(null=True)),
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
                "indexes": [models.Index(fields=["cluster", "hour"], name="team_hour_hour")],
            },
        ),
        migrations.CreateModel(
            name="TierDay",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("allocated", models.BigIntegerField(default=0)),
                ("not_running", models.BigIntegerField(default=0)),
                ("unmeasured", models.BigIntegerField(default=0)),
                ("idle", models.BigIntegerField(default=0)),
                ("underused", models.BigIntegerField(default=0)),
                ("busy", models.BigIntegerField(default=0)),
                ("burst", models.BigIntegerField(default=0)),
                ("allocated_on_unhealthy", models.BigIntegerField(default=0)),
                ("grade_apportioned", models.BigIntegerField(default=0)),
                ("grade_inferred", models.BigIntegerField(default=0)),
                ("energy_mwh", models.BigIntegerField(default=0)),
                ("memory_peak_mib", models.FloatField(null=True)),
                ("sm_active", models.BigIntegerField(null=True)),
                ("sm_measured", models.BigIntegerField(null=True)),
                ("tensor_active", models.BigIntegerField(null=True)),
                ("tensor_measured", models.BigIntegerField(null=True)),
                ("memory_copy_active", models.BigIntegerField(null=True)),
                ("memory_copy_measured", models.BigIntegerField(null=True)),
                ("capacity", models.BigIntegerField(default=0)),
                ("unhealthy", models.BigIntegerField(default=0)),
                ("unallocated", models.BigIntegerField(default=0)),
                ("stranded", models.BigIntegerField(default=0)),
                ("unattributed", models.BigIntegerField(default=0)),
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
                "indexes": [models.Index(fields=["day", "cluster"], name="tier_day_day")],
            },
        ),
        migrations.CreateModel(
            name="TierHour",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("allocated", models.BigIntegerField(default=0)),
                ("not_running", models.BigIntegerField(default=0)),
                ("unmeasured", models.BigIntegerField(default=0)),
                ("idle", models.BigIntegerField(default=0)),
                ("underused", models.BigIntegerField(default=0)),
                ("busy", models.BigIntegerField(default=0)),
                ("burst", models.BigIntegerField(default=0)),
                ("allocated_on_unhealthy", models.BigIntegerField(default=0)),
                ("grade_apportioned", models.BigIntegerField(default=0)),
                ("grade_inferred", models.BigIntegerField(default=0)),
                ("energy_mwh", models.BigIntegerField(default=0)),
                ("memory_peak_mib", models.FloatField(null=True)),
                ("sm_active", models.BigIntegerField(null=True)),
                ("sm_measured", models.BigIntegerField(null=True)),
                ("tensor_active", models.BigIntegerField(null=True)),
                ("tensor_measured", models.BigIntegerField(null=True)),
                ("memory_copy_active", models.BigIntegerField(null=True)),
                ("memory_copy_measured", models.BigIntegerField(null=True)),
                ("capacity", models.BigIntegerField(default=0)),
                ("unhealthy", models.BigIntegerField(default=0)),
                ("unallocated", models.BigIntegerField(default=0)),
                ("stranded", models.BigIntegerField(default=0)),
                ("unattributed", models.BigIntegerField(default=0)),
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
                ("hour", models.DateTimeField()),
                ("capacity_first", models.BigIntegerField(null=True)),
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
                "indexes": [models.Index(fields=["cluster", "hour"], name="tier_hour_hour")],
            },
        ),
        migrations.CreateModel(
            name="WorkloadActivityDay",
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
                ("day", models.DateField()),
                ("slots", models.JSONField(default=list)),
                ("resource", models.CharField(blank=True, max_length=253)),
                ("least_units", models.FloatField(default=0)),
                ("most_units", models.FloatField(default=0)),
                ("gpus", models.JSONField(null=True)),
                ("head", models.BigIntegerField(db_default=0, default=0)),
                ("tail", models.BigIntegerField(db_default=0, default=0)),
                ("idle_after", models.JSONField(null=True)),
                ("idle_pods", models.PositiveIntegerField(db_default=0, default=0)),
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
                    models.Index(fields=["cluster", "tier", "day"], name="workload_activity_day")
                ],
            },
        ),
        migrations.CreateModel(
            name="WorkloadDay",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("allocated", models.BigIntegerField(default=0)),
                ("not_running", models.BigIntegerField(default=0)),
                ("unmeasured", models.BigIntegerField(default=0)),
                ("idle", models.BigIntegerField(default=0)),
                ("underused", models.BigIntegerField(default=0)),
                ("busy", models.BigIntegerField(default=0)),
                ("burst", models.BigIntegerField(default=0)),
                ("allocated_on_unhealthy", models.BigIntegerField(default=0)),
                ("grade_apportioned", models.BigIntegerField(default=0)),
                ("grade_inferred", models.BigIntegerField(default=0)),
                ("energy_mwh", models.BigIntegerField(default=0)),
                ("memory_peak_mib", models.FloatField(null=True)),
                ("sm_active", models.BigIntegerField(null=True)),
                ("sm_measured", models.BigIntegerField(null=True)),
                ("tensor_active", models.BigIntegerField(null=True)),
                ("tensor_measured", models.BigIntegerField(null=True)),
                ("memory_copy_active", models.BigIntegerField(null=True)),
                ("memory_copy_measured", models.BigIntegerField(null=True)),
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
                    models.Index(fields=["cluster", "day"], name="workload_day_day"),
                    models.Index(fields=["team", "day"], name="workload_day_team"),
                    models.Index(fields=["workload", "day"], name="workload_day_workload"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Day",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("day", models.DateField()),
                ("start", models.DateTimeField()),
                ("end", models.DateTimeField()),
                ("rolled", models.BooleanField(default=False)),
                ("pruned", models.BooleanField(default=False)),
                ("folded", models.BooleanField(default=False)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "ordering": ["cluster", "day"],
                "constraints": [
                    models.UniqueConstraint(fields=("cluster", "day"), name="day_once"),
                    models.CheckConstraint(
                        condition=models.Q(("end__gt", models.F("start"))), name="day_forward"
                    ),
                ],
            },
        ),
    ]
