"""Keep of each pod how its containers ended, and when its runs last saved their state."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0008_slurm"),
    ]

    operations = [
        migrations.AddField(model_name="pod", name="exits", field=models.JSONField(null=True)),
        migrations.AddField(
            model_name="pod", name="checkpoints", field=models.JSONField(null=True)
        ),
    ]
