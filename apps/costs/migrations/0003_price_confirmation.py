"""Who confirmed a price, and when."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("costs", "0002_bill")]

    operations = [
        migrations.AddField(
            "price",
            "confirmed_by",
            models.CharField(blank=True, db_default="", default="", max_length=120),
        ),
        migrations.AddField("price", "confirmed_on", models.DateField(blank=True, null=True)),
    ]
