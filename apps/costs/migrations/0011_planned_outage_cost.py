"""What planned outages cost, as a cause of its own; hours that have some are priced anew."""

from typing import Any

from django.db import migrations, models

_CAUSES = [
    *("busy", "unmeasured", "underused", "idle", "not_running", "unallocated", "unhealthy"),
    *("planned_outage", "energy"),
]
_BOOKED = ("closedamount", "adjustment")


def widen(_apps: Any, editor: Any) -> None:
    """Make room for the name of the cause; SQLite does not mind how long a text is."""
    if editor.connection.vendor == "postgresql":
        for name in _BOOKED:
            # Only the length that is allowed changes: no row is written or read for it.
            editor.execute(f"ALTER TABLE costs_{name} ALTER COLUMN cause TYPE varchar(16)")


def reprice(apps: Any, _editor: Any) -> None:
    """Let the hours with planned outages be priced anew."""
    outages = apps.get_model("usage", "OutageHour").objects.order_by()
    priced = apps.get_model("costs", "PricedHour").objects
    for cluster, hour in list(outages.values_list("cluster_id", "hour").distinct()):
        priced.filter(cluster=cluster, hour=hour).delete()


class Migration(migrations.Migration):
    dependencies = [
        ("costs", "0010_replayed_effects"),
        ("usage", "0010_planned_outage_ledger"),
    ]

    operations = [
        *(
            migrations.AddField(
                model_name=table,
                name=name,
                field=models.BigIntegerField(db_default=0, default=0),
            )
            for table in ("poolcostday", "poolcosthour")
            for name in ("planned_outage", "cost_planned_outage")
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunPython(widen, migrations.RunPython.noop, elidable=True)
            ],
            state_operations=[
                migrations.AlterField(
                    model,
                    "cause",
                    models.CharField(max_length=16, choices=[(name, name) for name in _CAUSES]),
                )
                for model in _BOOKED
            ],
        ),
        migrations.RunPython(reprice, migrations.RunPython.noop, elidable=True),
    ]
