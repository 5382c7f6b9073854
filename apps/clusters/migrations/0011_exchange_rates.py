from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0010_pod_kept_for_latency"),
    ]

    operations = [
        migrations.AddField(
            model_name="reportsettings",
            name="exchange_rates",
            field=models.JSONField(blank=True, null=True),
        ),
    ]
