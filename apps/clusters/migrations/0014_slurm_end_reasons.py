from django.db import migrations

KIND = "SlurmJob"
WORDS = {
    "COMPLETED": "Completed",
    "CANCELLED": "Deleted",
    "REVOKED": "Deleted",
    "TIMEOUT": "DeadlineExceeded",
    "DEADLINE": "DeadlineExceeded",
    "PREEMPTED": "Preempted",
    "NODE_FAIL": "NodeLost",
    "BOOT_FAIL": "NodeLost",
    "OUT_OF_MEMORY": "OOMKilled",
    "FAILED": "Error",
    "REQUEUED": "EvictionByEvictionAPI",
}
"""As jobs are stored since: written in Slurm's words each that ended counted as failed."""


def rename(apps, schema_editor):
    pods = apps.get_model("clusters", "Pod").objects.filter(workload__kind=KIND)
    for before, after in WORDS.items():
        pods.filter(end_reason=before).update(end_reason=after)


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0013_node_pools"),
    ]

    operations = [
        # Two of Slurm's words may have become one: there is no way back, and none is needed.
        migrations.RunPython(rename, migrations.RunPython.noop, elidable=True),
    ]
