"""Who is behind a pod, in a table of its own."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0006_kai_queues"),
    ]

    operations = [
        migrations.CreateModel(
            name="PodPerson",
            fields=[
                (
                    "pod",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="behind",
                        serialize=False,
                        to="clusters.pod",
                    ),
                ),
                ("person", models.CharField(db_index=True, max_length=253)),
            ],
            options={
                "ordering": ["pod"],
            },
        ),
    ]
