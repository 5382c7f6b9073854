from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0004_sightings"),
    ]

    operations = [
        migrations.AddField(
            model_name="pod",
            name="observed_until",
            field=models.DateTimeField(blank=True, null=True),
        ),
    ]
