from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0009_pod_exits"),
    ]

    operations = [
        migrations.AddField(
            model_name="pod",
            name="kept_for_latency",
            field=models.BooleanField(db_default=False, default=False),
        ),
    ]
