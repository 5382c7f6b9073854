"""Keep of each pod its queue, its gang and its priority, for replays of recorded demand."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0003_namespace_teams"),
    ]

    operations = [
        migrations.AddField(
            model_name="pod",
            name="queue",
            field=models.CharField(blank=True, db_default="", max_length=253),
        ),
        migrations.AddField(
            model_name="pod",
            name="gang",
            field=models.CharField(blank=True, db_default="", max_length=253),
        ),
        migrations.AddField(
            model_name="pod",
            name="priority",
            field=models.IntegerField(blank=True, null=True),
        ),
    ]
