"""Divide the hourly costs of workloads by month on PostgreSQL; SQLite keeps plain tables."""

from django.db import migrations

from gpuportal.partitions import divide, join


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("costs", "0003_price_confirmation")]

    operations = [
        migrations.RunPython(divide("costs_workloadcosthour"), join("costs_workloadcosthour"))
    ]
