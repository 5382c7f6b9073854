from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("usage", "0004_activity_and_unknown_halves"),
    ]

    operations = [
        migrations.AddField(
            model_name="day",
            name="folded",
            field=models.BooleanField(default=False),
        ),
    ]
