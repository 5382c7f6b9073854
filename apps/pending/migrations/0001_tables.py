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
            name="Episode",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("kind", models.CharField(max_length=63)),
                ("uid", models.CharField(max_length=64)),
                ("name", models.CharField(max_length=253)),
                ("resource", models.CharField(blank=True, max_length=253)),
                ("units", models.FloatField(default=0.0)),
                ("gpu_equivalents", models.FloatField(default=0.0)),
                ("counted", models.FloatField(default=0.0)),
                (
                    "counts",
                    models.CharField(
                        choices=[
                            ("pending", "pending"),
                            ("suppressed", "suppressed"),
                            ("starting", "starting"),
                            ("nothing", "nothing"),
                        ],
                        max_length=10,
                    ),
                ),
                ("queue", models.CharField(blank=True, max_length=253)),
                ("priority", models.IntegerField(default=0)),
                ("since", models.DateTimeField()),
                ("bound_at", models.DateTimeField(blank=True, null=True)),
                ("until", models.DateTimeField(blank=True, null=True)),
                (
                    "outcome",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("started", "started"),
                            ("gave_up", "gave_up"),
                            ("refused", "refused"),
                            ("settled", "settled"),
                        ],
                        max_length=10,
                    ),
                ),
                ("again", models.BooleanField(default=False)),
                (
                    "cause",
                    models.CharField(
                        choices=[
                            ("capacity", "capacity"),
                            ("quota", "quota"),
                            ("queue", "queue"),
                            ("affinity", "affinity"),
                            ("taint", "taint"),
                            ("cordon", "cordon"),
                            ("spread", "spread"),
                            ("topology", "topology"),
                            ("gang", "gang"),
                            ("claim", "claim"),
                            ("volume", "volume"),
                            ("preemption", "preemption"),
                            ("scheduler", "scheduler"),
                            ("admission", "admission"),
                            ("starting", "starting"),
                            ("other", "other"),
                            ("unschedulable", "unschedulable"),
                            ("unrecorded", "unrecorded"),
                        ],
                        max_length=16,
                    ),
                ),
                ("detail", models.CharField(blank=True, max_length=120)),
                ("message", models.TextField(blank=True)),
                ("findings", models.JSONField(default=dict)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="clusters.cluster"
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
                "ordering": ["since", "pk"],
                "indexes": [
                    models.Index(fields=["until", "since"], name="episode_lifetime"),
                    models.Index(fields=["workload", "-since"], name="episode_of_workload"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "kind", "uid", "since"), name="episode_once"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("until__isnull", True),
                            ("until__gte", models.F("since")),
                            _connector="OR",
                        ),
                        name="episode_forward",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="CauseInterval",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("start", models.DateTimeField()),
                ("end", models.DateTimeField(blank=True, null=True)),
                (
                    "cause",
                    models.CharField(
                        choices=[
                            ("capacity", "capacity"),
                            ("quota", "quota"),
                            ("queue", "queue"),
                            ("affinity", "affinity"),
                            ("taint", "taint"),
                            ("cordon", "cordon"),
                            ("spread", "spread"),
                            ("topology", "topology"),
                            ("gang", "gang"),
                            ("claim", "claim"),
                            ("volume", "volume"),
                            ("preemption", "preemption"),
                            ("scheduler", "scheduler"),
                            ("admission", "admission"),
                            ("starting", "starting"),
                            ("other", "other"),
                            ("unschedulable", "unschedulable"),
                            ("unrecorded", "unrecorded"),
                        ],
                        max_length=16,
                    ),
                ),
                ("detail", models.CharField(blank=True, max_length=120)),
                ("message", models.TextField(blank=True)),
                (
                    "counts",
                    models.CharField(
                        choices=[
                            ("pending", "pending"),
                            ("suppressed", "suppressed"),
                            ("starting", "starting"),
                            ("nothing", "nothing"),
                        ],
                        max_length=10,
                    ),
                ),
                ("counted", models.FloatField(default=0.0)),
                (
                    "episode",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="intervals",
                        to="pending.episode",
                    ),
                ),
            ],
            options={
                "ordering": ["episode", "start"],
                "indexes": [models.Index(fields=["end", "start"], name="cause_interval_lifetime")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("episode", "start"), name="cause_interval_once"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("end__isnull", True), ("end__gte", models.F("start")), _connector="OR"
                        ),
                        name="cause_interval_forward",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Eviction",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("pod_uid", models.CharField(max_length=64)),
                ("at", models.DateTimeField()),
                ("reclaimed", models.BooleanField(default=False)),
                ("by", models.CharField(blank=True, max_length=253)),
                ("gpu_equivalents", models.FloatField(default=0.0)),
                ("held", models.BigIntegerField(default=0)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="clusters.cluster"
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
                "ordering": ["-at", "pk"],
                "indexes": [models.Index(fields=["at"], name="eviction_at")],
                "constraints": [
                    models.UniqueConstraint(fields=("cluster", "pod_uid"), name="eviction_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="PendingDay",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("day", models.DateField()),
                (
                    "cause",
                    models.CharField(
                        choices=[
                            ("capacity", "capacity"),
                            ("quota", "quota"),
                            ("queue", "queue"),
                            ("affinity", "affinity"),
                            ("taint", "taint"),
                            ("cordon", "cordon"),
                            ("spread", "spread"),
                            ("topology", "topology"),
                            ("gang", "gang"),
                            ("claim", "claim"),
                            ("volume", "volume"),
                            ("preemption", "preemption"),
                            ("scheduler", "scheduler"),
                            ("admission", "admission"),
                            ("starting", "starting"),
                            ("other", "other"),
                            ("unschedulable", "unschedulable"),
                            ("unrecorded", "unrecorded"),
                        ],
                        max_length=16,
                    ),
                ),
                ("waited", models.BigIntegerField(default=0)),
                ("suppressed", models.BigIntegerField(default=0)),
                ("starting", models.BigIntegerField(default=0)),
                ("began", models.IntegerField(default=0)),
                ("ended", models.IntegerField(default=0)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="clusters.cluster"
                    ),
                ),
                (
                    "namespace",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="clusters.namespace"
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.SET_NULL, to="accounts.team"
                    ),
                ),
                (
                    "tier",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.SET_NULL, to="clusters.tier"
                    ),
                ),
            ],
            options={
                "ordering": ["day", "pk"],
                "indexes": [models.Index(fields=["day", "cluster"], name="wait_day_day")],
            },
        ),
        migrations.CreateModel(
            name="RefreshState",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("at", models.DateTimeField(blank=True, null=True)),
                ("waiting", models.IntegerField(default=0)),
                ("error", models.TextField(blank=True)),
                ("rolled_to", models.DateTimeField(blank=True, null=True)),
                ("pods_to", models.BigIntegerField(default=0)),
                ("revised_to", models.DateTimeField(blank=True, null=True)),
                ("lease_until", models.DateTimeField(blank=True, null=True)),
                (
                    "queue_mark",
                    models.CharField(blank=True, db_default="", default="", max_length=32),
                ),
                (
                    "cluster",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, to="clusters.cluster"
                    ),
                ),
            ],
        ),
    ]
