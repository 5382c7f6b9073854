"""Why a recommendation was not replayed."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("costs", "0012_change_values"),
    ]

    operations = [
        migrations.AddField(
            model_name="recommendation",
            name="replay_gap",
            field=models.CharField(
                blank=True,
                choices=[
                    ("nothing-recorded", "nothing-recorded"),
                    ("no-work", "no-work"),
                    ("not-offered", "not-offered"),
                    ("other-layout", "other-layout"),
                ],
                db_default="",
                default="",
                max_length=16,
            ),
        ),
    ]
