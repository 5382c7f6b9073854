"""Keep expected queue times that are computed ahead."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0004_pod_queue"),
        ("planning", "0002_backtest"),
    ]

    operations = [
        migrations.CreateModel(
            name="QueueForecast",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("trained_at", models.DateTimeField(null=True)),
                ("past", models.JSONField(default=list)),
                ("at", models.DateTimeField(null=True)),
                ("rows", models.JSONField(default=list)),
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
