"""Answers of persons about their own work: their names are for themselves and for leads."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("alerts", "0003_digests_of_persons")]

    operations = [
        migrations.AddField(
            "idleanswer", "of_person", models.BooleanField(default=False, db_default=False)
        ),
    ]
