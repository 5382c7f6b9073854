"""Names that were given to another person."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("clusters", "0017_contract_pod_indexes")]

    operations = [
        migrations.CreateModel(
            name="FormerPerson",
            fields=[
                (
                    "person",
                    models.CharField(max_length=253, primary_key=True, serialize=False),
                ),
                ("before", models.DateTimeField()),
            ],
            options={"ordering": ["person"]},
        ),
    ]
