"""Keep the newest backtest of each cluster."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0004_pod_queue"),
        ("planning", "0001_capacity_plans"),
    ]

    operations = [
        migrations.CreateModel(
            name="Backtest",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("start", models.DateTimeField(null=True)),
                ("end", models.DateTimeField(null=True)),
                ("computed_at", models.DateTimeField(null=True)),
                ("tried_at", models.DateTimeField(null=True)),
                ("works", models.PositiveIntegerField(default=0)),
                ("packing", models.CharField(blank=True, db_default="", default="", max_length=16)),
                ("rows", models.JSONField(default=list)),
                ("left_out", models.JSONField(default=dict)),
                ("assumptions", models.JSONField(default=list)),
                ("error", models.TextField(blank=True, db_default="", default="")),
                ("lease_until", models.DateTimeField(blank=True, null=True)),
                (
                    "cluster",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, to="clusters.cluster"
                    ),
                ),
            ],
            options={"ordering": ["cluster"]},
        ),
    ]
