"""What recommendations change, as data; those that stand get theirs when they are found again."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("costs", "0011_planned_outage_cost"),
    ]

    operations = [
        migrations.AddField(
            model_name="recommendation",
            name="change_values",
            field=models.JSONField(null=True),
        ),
    ]
