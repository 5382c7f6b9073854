"""Keep the layout advice of clusters."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0005_topology_kinds"),
        ("planning", "0004_policy_simulation"),
    ]

    operations = [
        migrations.CreateModel(
            name="LayoutPlan",
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
                ("advice", models.JSONField(null=True)),
                ("error", models.TextField(blank=True, db_default="", default="")),
                ("lease_until", models.DateTimeField(blank=True, null=True)),
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
    ]
