from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("costs", "0008_exchange_rates")]

    operations = [
        # Files of months that are closed already stay as they are; those closed from now on differ.
        migrations.AddField(
            model_name="closedperiod",
            name="unbilled_in_files",
            field=models.BooleanField(db_default=False, default=True),
        ),
    ]
