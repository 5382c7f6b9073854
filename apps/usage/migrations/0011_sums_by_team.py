"""Find the sums of one team without reading those of all others of its cluster."""

from importlib import import_module

from django.db import migrations, models

AddIndexBesideWriters = import_module(
    "apps.usage.migrations.0002_pod_hours_by_workload"
).AddIndexBesideWriters


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("usage", "0010_planned_outage_ledger")]

    operations = [
        AddIndexBesideWriters(
            "teamday", models.Index(fields=["team", "day"], name="team_day_team")
        ),
        AddIndexBesideWriters(
            "teamhour", models.Index(fields=["team", "hour"], name="team_hour_team")
        ),
    ]
