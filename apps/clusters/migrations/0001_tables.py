import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("accounts", "0001_tables"),
    ]

    operations = [
        migrations.CreateModel(
            name="Cluster",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=120, unique=True)),
                ("prometheus", models.JSONField(default=dict)),
                ("kubernetes", models.JSONField(blank=True, null=True)),
                ("active", models.BooleanField(default=True)),
                ("collect_from", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="GpuModel",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=120)),
                ("key", models.CharField(max_length=120, unique=True)),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="ReportSettings",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("time_zone", models.CharField(default="UTC", max_length=64)),
                ("currency", models.CharField(default="USD", max_length=3)),
            ],
        ),
        migrations.CreateModel(
            name="Tier",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=120, unique=True)),
                ("position", models.PositiveIntegerField(default=0)),
                ("promise", models.TextField(blank=True)),
                ("active", models.BooleanField(default=True)),
                ("builtin", models.BooleanField(default=False)),
            ],
            options={
                "ordering": ["position", "name"],
            },
        ),
        migrations.CreateModel(
            name="Namespace",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=253)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "ordering": ["cluster", "name"],
                "abstract": False,
                "constraints": [
                    models.UniqueConstraint(fields=("cluster", "name"), name="namespace_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="NamespaceClaim",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("valid_from", models.DateTimeField()),
                ("valid_to", models.DateTimeField(blank=True, null=True)),
                ("position", models.PositiveIntegerField(default=0)),
                ("pattern", models.CharField(max_length=253)),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="claims",
                        to="accounts.team",
                    ),
                ),
            ],
            options={
                "ordering": ["valid_from", "position", "pk"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("team", "pattern", "valid_from"), name="namespace_claim_once"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("valid_to__isnull", True),
                            ("valid_to__gt", models.F("valid_from")),
                            _connector="OR",
                        ),
                        name="namespace_claim_ends_after_start",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Node",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=253)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "ordering": ["cluster", "name"],
                "abstract": False,
                "constraints": [
                    models.UniqueConstraint(fields=("cluster", "name"), name="node_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="NodeInterval",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("start", models.DateTimeField()),
                ("end", models.DateTimeField(blank=True, null=True)),
                ("ready", models.BooleanField()),
                ("schedulable", models.BooleanField()),
                ("capacity", models.JSONField(default=dict)),
                ("allocatable", models.JSONField(default=dict)),
                ("labels", models.JSONField(default=dict)),
                ("devices", models.JSONField(default=list)),
                (
                    "node",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="intervals",
                        to="clusters.node",
                    ),
                ),
            ],
            options={
                "ordering": ["node", "start"],
                "indexes": [models.Index(fields=["end"], name="node_interval_end")],
                "constraints": [
                    models.UniqueConstraint(fields=("node", "start"), name="node_interval_once"),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("end__isnull", True), ("end__gt", models.F("start")), _connector="OR"
                        ),
                        name="node_interval_ends_after_start",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ObservedObject",
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
                            ("Pod", "Pod"),
                            ("Node", "Node"),
                            ("Event", "Event"),
                            ("ReplicaSet", "ReplicaSet"),
                            ("StatefulSet", "StatefulSet"),
                            ("Job", "Job"),
                            ("ResourceQuota", "ResourceQuota"),
                            ("ResourceClaim", "ResourceClaim"),
                            ("Workload.kueue.x-k8s.io", "Workload.kueue.x-k8s.io"),
                            ("ClusterQueue.kueue.x-k8s.io", "ClusterQueue.kueue.x-k8s.io"),
                            ("LocalQueue.kueue.x-k8s.io", "LocalQueue.kueue.x-k8s.io"),
                            ("Cohort.kueue.x-k8s.io", "Cohort.kueue.x-k8s.io"),
                            ("ResourceFlavor.kueue.x-k8s.io", "ResourceFlavor.kueue.x-k8s.io"),
                            ("PodGroup.scheduling.volcano.sh", "PodGroup.scheduling.volcano.sh"),
                            ("Queue.scheduling.volcano.sh", "Queue.scheduling.volcano.sh"),
                            ("PodGroup.scheduling.x-k8s.io", "PodGroup.scheduling.x-k8s.io"),
                            ("PodGroup.scheduling.k8s.io", "PodGroup.scheduling.k8s.io"),
                        ],
                        max_length=40,
                    ),
                ),
                ("uid", models.CharField(max_length=64)),
                ("namespace", models.CharField(blank=True, max_length=253)),
                ("name", models.CharField(max_length=253)),
                ("first_at", models.DateTimeField()),
                ("changed_at", models.DateTimeField()),
                ("gone_at", models.DateTimeField(blank=True, null=True)),
                ("body", models.JSONField(default=dict)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "ordering": ["cluster", "kind", "uid", "first_at"],
                "indexes": [
                    models.Index(
                        fields=["cluster", "kind", "gone_at"], name="observed_object_present"
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "kind", "uid", "first_at"), name="observed_object_once"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("gone_at__isnull", True),
                            ("gone_at__gte", models.F("first_at")),
                            _connector="OR",
                        ),
                        name="observed_object_forward",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="PodRevision",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("hour", models.DateTimeField()),
                ("number", models.PositiveIntegerField(default=0)),
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
                    models.UniqueConstraint(fields=("cluster", "hour"), name="pod_revision_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="TierRule",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("valid_from", models.DateTimeField()),
                ("valid_to", models.DateTimeField(blank=True, null=True)),
                ("position", models.PositiveIntegerField()),
                (
                    "sharing",
                    models.CharField(
                        choices=[
                            ("exclusive", "exclusive"),
                            ("mig", "mig"),
                            ("time-sliced", "time-sliced"),
                            ("mps", "mps"),
                            ("dra", "dra"),
                        ],
                        max_length=16,
                    ),
                ),
                ("resources", models.JSONField(default=list)),
                ("device_classes", models.JSONField(default=list)),
                ("node_selector", models.JSONField(default=dict)),
                ("allowed_teams", models.JSONField(default=list)),
                (
                    "tier",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="rules",
                        to="clusters.tier",
                    ),
                ),
            ],
            options={
                "ordering": ["valid_from", "position", "pk"],
                "constraints": [
                    models.UniqueConstraint(fields=("tier", "valid_from"), name="tier_rule_once"),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("valid_to__isnull", True),
                            ("valid_to__gt", models.F("valid_from")),
                            _connector="OR",
                        ),
                        name="tier_rule_ends_after_start",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="WatchCoverage",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("start", models.DateTimeField()),
                ("end", models.DateTimeField()),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "ordering": ["cluster", "start"],
                "constraints": [
                    models.UniqueConstraint(fields=("cluster", "start"), name="watch_span_once"),
                    models.CheckConstraint(
                        condition=models.Q(("end__gte", models.F("start"))),
                        name="watch_span_forward",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="WatchIssue",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("subject", models.CharField(max_length=120)),
                ("text", models.TextField()),
                ("since", models.DateTimeField()),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "ordering": ["cluster", "subject"],
                "constraints": [
                    models.UniqueConstraint(fields=("cluster", "subject"), name="watch_note_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="Workload",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("kind", models.CharField(max_length=63)),
                ("name", models.CharField(max_length=253)),
                (
                    "namespace",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="clusters.namespace"
                    ),
                ),
            ],
            options={
                "ordering": ["namespace", "kind", "name"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("namespace", "kind", "name"), name="workload_once"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Pod",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("uid", models.CharField(max_length=64)),
                ("name", models.CharField(max_length=253)),
                ("node_name", models.CharField(blank=True, max_length=253)),
                ("resource", models.CharField(max_length=253)),
                ("units", models.FloatField()),
                ("requests", models.JSONField(default=dict)),
                ("node_selector", models.JSONField(default=dict)),
                ("priority_class", models.CharField(blank=True, max_length=253)),
                ("created_at", models.DateTimeField()),
                ("bound_at", models.DateTimeField(blank=True, null=True)),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                ("deleted_at", models.DateTimeField(blank=True, null=True)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("observed_until", models.DateTimeField(blank=True, null=True)),
                ("runs", models.JSONField(default=list)),
                ("claims", models.JSONField(default=list)),
                ("end_reason", models.CharField(blank=True, max_length=120)),
                (
                    "source",
                    models.CharField(
                        choices=[("api", "api"), ("metrics", "metrics")], max_length=8
                    ),
                ),
                ("lost", models.BooleanField(default=False)),
                ("unschedulable", models.BooleanField(db_default=False, default=False)),
                ("revised_at", models.DateTimeField(blank=True, null=True)),
                ("gpu_equivalents", models.FloatField(default=0.0)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="clusters.cluster"
                    ),
                ),
                (
                    "gpu_model",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        to="clusters.gpumodel",
                    ),
                ),
                (
                    "tier",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.SET_NULL, to="clusters.tier"
                    ),
                ),
                (
                    "workload",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="clusters.workload"
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at", "pk"],
                "indexes": [
                    models.Index(fields=["cluster", "ended_at", "created_at"], name="pod_lifetime"),
                    models.Index(fields=["workload", "-created_at"], name="pod_of_workload"),
                    models.Index(fields=["bound_at"], name="pod_bound"),
                    models.Index(fields=["ended_at"], name="pod_ended"),
                    models.Index(
                        condition=models.Q(("revised_at__isnull", False)),
                        fields=["cluster", "revised_at"],
                        name="pod_revised",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("cluster", "uid"), name="pod_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="ClaimInterval",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("uid", models.CharField(max_length=64)),
                ("namespace", models.CharField(max_length=253)),
                ("name", models.CharField(max_length=253)),
                ("node_name", models.CharField(blank=True, max_length=253)),
                ("allocated_at", models.DateTimeField()),
                ("released_at", models.DateTimeField(blank=True, null=True)),
                ("devices", models.JSONField(default=list)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "ordering": ["cluster", "uid", "allocated_at"],
                "indexes": [
                    models.Index(fields=["cluster", "released_at"], name="claim_interval_end")
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "uid", "allocated_at"), name="claim_interval_once"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("released_at__isnull", True),
                            ("released_at__gte", models.F("allocated_at")),
                            _connector="OR",
                        ),
                        name="claim_interval_forward",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Device",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("uuid", models.CharField(max_length=253)),
                ("gpu_instance", models.CharField(blank=True, max_length=16)),
                ("node_name", models.CharField(blank=True, max_length=253)),
                ("place", models.CharField(blank=True, max_length=40)),
                ("profile", models.CharField(blank=True, max_length=40)),
                ("model", models.CharField(blank=True, max_length=120)),
                ("first_seen", models.DateTimeField()),
                ("last_seen", models.DateTimeField()),
                ("looked_at", models.DateTimeField()),
                ("state", models.JSONField(default=dict)),
                (
                    "health",
                    models.CharField(
                        choices=[
                            ("ok", "ok"),
                            ("watch", "watch"),
                            ("broken", "broken"),
                            ("unseen", "unseen"),
                        ],
                        max_length=8,
                    ),
                ),
                ("health_since", models.DateTimeField()),
                ("reasons", models.JSONField(default=list)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "ordering": ["cluster", "node_name", "place", "pk"],
                "indexes": [
                    models.Index(fields=["cluster", "node_name", "place"], name="device_place"),
                    models.Index(fields=["health"], name="device_health"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "uuid", "gpu_instance"), name="device_once"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("last_seen__gte", models.F("first_seen"))),
                        name="device_seen_forward",
                    ),
                ],
            },
        ),
    ]
