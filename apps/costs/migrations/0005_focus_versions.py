"""Files of FOCUS 1.2 and 1.3 beside those of 1.0; only the code knows of the choices."""

from django.db import migrations, models

FORMATS = [
    *("csv", "xlsx", "parquet", "focus-csv", "focus-parquet"),
    *("focus1.2-csv", "focus1.2-parquet", "focus1.3-csv", "focus1.3-parquet"),
]


class Migration(migrations.Migration):
    dependencies = [("costs", "0004_partitions")]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.AlterField(
                    model,
                    "format",
                    models.CharField(max_length=16, choices=[(name, name) for name in FORMATS]),
                )
                for model in ("closedfile", "export")
            ]
        )
    ]
