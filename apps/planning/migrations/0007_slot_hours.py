"""Store what was free at the start of each hour: slots for gangs, MIG devices and replicas."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0015_pod_gpus"),
        ("planning", "0006_forecast_trained_from"),
    ]

    operations = [
        migrations.CreateModel(
            name="SlotHour",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("hour", models.DateTimeField()),
                ("collected_at", models.DateTimeField()),
                ("pod_revision", models.PositiveIntegerField(default=0)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "ordering": ["-hour", "cluster"],
            },
        ),
        migrations.CreateModel(
            name="TierSlotHour",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("device", models.CharField(blank=True, max_length=253)),
                ("offered", models.PositiveIntegerField()),
                ("free", models.PositiveIntegerField()),
                ("largest_node", models.PositiveIntegerField(default=0)),
                ("slots", models.JSONField(default=dict)),
                ("free_nodes", models.JSONField(default=dict)),
                (
                    "of_hour",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="planning.slothour"
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
                "ordering": ["of_hour", "tier", "device"],
            },
        ),
        migrations.AddIndex(
            model_name="slothour",
            index=models.Index(fields=["hour"], name="slot_hour"),
        ),
        migrations.AddConstraint(
            model_name="slothour",
            constraint=models.UniqueConstraint(fields=("cluster", "hour"), name="slot_hour_once"),
        ),
        migrations.AddConstraint(
            model_name="tierslothour",
            constraint=models.UniqueConstraint(
                fields=("of_hour", "tier", "device"), name="tier_slot_hour_once"
            ),
        ),
    ]
