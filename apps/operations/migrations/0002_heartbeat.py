from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("operations", "0001_tables"),
    ]

    operations = [
        migrations.CreateModel(
            name="Heartbeat",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("sent_at", models.DateTimeField()),
                ("at", models.DateTimeField()),
            ],
        ),
    ]
