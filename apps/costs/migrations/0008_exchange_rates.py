from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("costs", "0007_energy_in_files"),
    ]

    operations = [
        migrations.AddField(
            model_name="closedperiod",
            name="exchange_rates",
            field=models.JSONField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="bill",
            name="exchange_rates",
            field=models.JSONField(blank=True, null=True),
        ),
    ]
