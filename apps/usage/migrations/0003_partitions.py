"""Divide the hours of pods and nodes by month on PostgreSQL; SQLite keeps plain tables."""

from django.db import migrations

from gpuportal.partitions import divide, join

_TABLES = ("usage_podhour", "usage_nodehour")


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("usage", "0002_pod_hours_by_workload")]

    operations = [migrations.RunPython(divide(*_TABLES), join(*_TABLES))]
