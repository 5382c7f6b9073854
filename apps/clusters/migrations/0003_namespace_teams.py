"""Call a pattern of a team's namespaces by that: a claim is a ResourceClaim.

The table and its constraints keep their names: the version before works on while this one starts.
"""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_process_leases"),
        ("clusters", "0002_estimated_times"),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.RenameModel("NamespaceClaim", "NamespaceTeam"),
                migrations.AlterModelTable("NamespaceTeam", "clusters_namespaceclaim"),
                migrations.AlterField(
                    "NamespaceTeam",
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="namespace_teams",
                        to="accounts.team",
                    ),
                ),
            ]
        )
    ]
