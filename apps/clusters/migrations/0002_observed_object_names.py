"""Constraints and the index of observed objects get the name of their table."""

from django.db import migrations, models
from django.db.models import F, Q


class Migration(migrations.Migration):
    dependencies = [("clusters", "0001_initial")]

    operations = [
        migrations.RenameIndex(
            "observedobject", "observed_object_present", old_name="sighting_present"
        ),
        migrations.RemoveConstraint("observedobject", "sighting_once"),
        migrations.AddConstraint(
            "observedobject",
            models.UniqueConstraint(
                fields=["cluster", "kind", "uid", "first_at"], name="observed_object_once"
            ),
        ),
        migrations.RemoveConstraint("observedobject", "sighting_forward"),
        migrations.AddConstraint(
            "observedobject",
            models.CheckConstraint(
                condition=Q(gone_at__isnull=True) | Q(gone_at__gte=F("first_at")),
                name="observed_object_forward",
            ),
        ),
    ]
