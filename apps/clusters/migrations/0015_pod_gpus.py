from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0014_slurm_end_reasons"),
    ]

    operations = [
        migrations.AddField(
            model_name="pod",
            name="gpus",
            field=models.TextField(blank=True, db_default="", default=""),
        ),
    ]
