from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("goodput", "0004_report_facts"),
    ]

    operations = [
        migrations.AddField(
            model_name="lossday",
            name="by_hour",
            field=models.JSONField(null=True),
        ),
        migrations.AddField(
            model_name="lossday",
            name="repeated",
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="storedlossday",
            name="basis",
            field=models.CharField(blank=True, db_default="", default="", max_length=80),
        ),
    ]
