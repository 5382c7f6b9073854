import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("clusters", "0011_exchange_rates")]

    operations = [
        migrations.CreateModel(
            name="ObservedPerson",
            fields=[
                (
                    "object",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="behind",
                        serialize=False,
                        to="clusters.observedobject",
                    ),
                ),
                ("person", models.CharField(db_index=True, max_length=253)),
            ],
            options={"ordering": ["object"]},
        ),
    ]
