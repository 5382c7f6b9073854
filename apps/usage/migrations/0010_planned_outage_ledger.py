"""Planned outages as a part of the ledger; hours that have some already are divided anew."""

from typing import Any

from django.db import migrations, models
from django.db.models import F, Sum
from django.db.models.functions import Least

_OF_TIER = ("cluster_id", "tier_id", "gpu_model_id", "capacity_type")


def divide(apps: Any, _editor: Any) -> None:
    """Take what outages took out of the amounts of their node, tier and day."""
    outages = apps.get_model("usage", "OutageHour").objects.order_by()
    _move(apps.get_model("usage", "NodeHour"), outages, ("hour", *_OF_TIER, "node_id"))
    _move(apps.get_model("usage", "TierHour"), outages, ("hour", *_OF_TIER))
    days = apps.get_model("usage", "Day").objects.filter(cluster__in=outages.values("cluster"))
    for row in days.order_by("pk").iterator():
        own = outages.filter(cluster=row.cluster_id, hour__gte=row.start, hour__lt=row.end)
        _move(apps.get_model("usage", "TierDay"), own, _OF_TIER, day=row.day)


def _move(table: Any, outages: Any, keys: tuple[str, ...], **of: Any) -> None:
    rows = outages.values(*keys).annotate(sick=Sum("unhealthy"), free=Sum("unallocated"))
    for row in list(rows):
        sick, free = int(row.pop("sick")), int(row.pop("free"))
        table.objects.filter(**row, **of).update(
            unhealthy=F("unhealthy") - sick,
            unallocated=F("unallocated") - free,
            stranded=Least(F("stranded"), F("unallocated") - free),
            planned_outage=F("planned_outage") + sick + free,
        )


class Migration(migrations.Migration):
    dependencies = [("usage", "0009_planned_outages")]

    operations = [
        *(
            migrations.AddField(
                model_name=name,
                name="planned_outage",
                field=models.BigIntegerField(db_default=0, default=0),
            )
            for name in ("nodehour", "tierday", "tierhour")
        ),
        migrations.RunPython(divide, migrations.RunPython.noop, elidable=True),
    ]
