"""`Delivery.notice` is called `alert`, as what it refers to."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0001_initial"), ("alerts", "0001_initial")]

    operations = [
        migrations.RemoveConstraint("delivery", "delivery_once"),
        migrations.RenameField("delivery", "notice", "alert"),
        migrations.AddConstraint(
            "delivery",
            models.UniqueConstraint(fields=("alert", "channel"), name="delivery_once"),
        ),
        migrations.AlterField(
            "alert",
            "team",
            models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="alerts",
                to="accounts.team",
            ),
        ),
    ]
