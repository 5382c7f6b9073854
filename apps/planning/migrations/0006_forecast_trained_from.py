"""Keep from when on days were known that expected queue times were learnt from."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("planning", "0005_layout_plan"),
    ]

    operations = [
        migrations.AddField(
            model_name="queueforecast",
            name="trained_from",
            field=models.DateTimeField(blank=True, null=True),
        ),
    ]
