"""Keep the idle part of the energy of shared GPUs."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("usage", "0003_partitions"),
    ]

    operations = [
        migrations.AddField(
            model_name="nodehour",
            name="energy_idle_mwh",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="nodehour",
            name="energy_split_mwh",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="podhour",
            name="energy_idle_mwh",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="podhour",
            name="energy_split_mwh",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="teamday",
            name="energy_idle_mwh",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="teamday",
            name="energy_split_mwh",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="teamhour",
            name="energy_idle_mwh",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="teamhour",
            name="energy_split_mwh",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="tierday",
            name="energy_idle_mwh",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="tierday",
            name="energy_split_mwh",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="tierhour",
            name="energy_idle_mwh",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="tierhour",
            name="energy_split_mwh",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="workloadday",
            name="energy_idle_mwh",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="workloadday",
            name="energy_split_mwh",
            field=models.BigIntegerField(null=True),
        ),
    ]
