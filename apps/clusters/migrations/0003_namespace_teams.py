"""Call a pattern of a team's namespaces by that: a claim is a ResourceClaim."""

import django.db.models.deletion
from django.db import migrations, models

_CLAIM, _TEAM = "NamespaceClaim", "NamespaceTeam"
_ENDS_AFTER_START = models.CheckConstraint(
    condition=models.Q(
        ("valid_to__isnull", True), ("valid_to__gt", models.F("valid_from")), _connector="OR"
    ),
    name="namespace_team_ends_after_start",
)


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_process_leases"),
        ("clusters", "0002_estimated_times"),
    ]

    operations = [
        migrations.RemoveConstraint(_CLAIM, "namespace_claim_once"),
        migrations.RemoveConstraint(_CLAIM, "namespace_claim_ends_after_start"),
        migrations.RenameModel(_CLAIM, _TEAM),
        migrations.AlterField(
            _TEAM,
            "team",
            models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="namespace_teams",
                to="accounts.team",
            ),
        ),
        migrations.AddConstraint(
            _TEAM,
            models.UniqueConstraint(
                fields=("team", "pattern", "valid_from"), name="namespace_team_once"
            ),
        ),
        migrations.AddConstraint(_TEAM, _ENDS_AFTER_START),
    ]
