"""Files of FOCUS 1.2 and 1.3 beside those of 1.0."""

from django.db import migrations, models

FORMATS = [
    "csv",
    "xlsx",
    "parquet",
    "focus-csv",
    "focus-parquet",
    "focus-1.2-csv",
    "focus-1.2-parquet",
    "focus-1.3-csv",
    "focus-1.3-parquet",
]


class Migration(migrations.Migration):
    dependencies = [("costs", "0004_partitions")]

    operations = [
        migrations.AlterField(
            model,
            "format",
            models.CharField(max_length=24, choices=[(name, name) for name in FORMATS]),
        )
        for model in ("closedfile", "export")
    ]
