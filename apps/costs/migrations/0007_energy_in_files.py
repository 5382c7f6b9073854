from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("costs", "0006_energy_factor")]

    operations = [
        # Files of months that are closed already stay as they are; those closed from now on differ.
        migrations.AddField(
            model_name="closedperiod",
            name="energy_in_files",
            field=models.BooleanField(db_default=False, default=True),
        ),
    ]
