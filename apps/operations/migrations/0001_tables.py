import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("accounts", "0001_tables"),
        ("clusters", "0001_tables"),
    ]

    operations = [
        migrations.CreateModel(
            name="DoctorCheck",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("at", models.DateTimeField()),
                ("unread", models.JSONField(default=list)),
                (
                    "cluster",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, to="clusters.cluster"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="SeenExporters",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("profile", models.JSONField(default=dict)),
                ("changes", models.JSONField(default=list)),
                ("changed_at", models.DateTimeField(blank=True, null=True)),
                (
                    "cluster",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, to="clusters.cluster"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="CatalogProposal",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("entitlement", "entitlement"),
                            ("namespaces", "namespaces"),
                            ("budget", "budget"),
                        ],
                        max_length=12,
                    ),
                ),
                ("subject", models.CharField(blank=True, max_length=120)),
                ("before", models.JSONField(default=dict)),
                ("after", models.JSONField(default=dict)),
                ("reason", models.TextField()),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("submitted", "submitted"),
                            ("approved", "approved"),
                            ("rejected", "rejected"),
                            ("canceled", "canceled"),
                        ],
                        default="submitted",
                        max_length=9,
                    ),
                ),
                ("author", models.CharField(max_length=150)),
                ("created_at", models.DateTimeField()),
                ("decided_by", models.CharField(blank=True, max_length=150)),
                ("decided_at", models.DateTimeField(blank=True, null=True)),
                ("decision", models.TextField(blank=True)),
                ("in_file", models.BooleanField(default=False)),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, to="accounts.team"
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at", "-pk"],
                "indexes": [
                    models.Index(fields=["state", "-created_at"], name="catalog_proposal_state")
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("state", "submitted")),
                        fields=("team", "kind", "subject"),
                        name="catalog_proposal_open_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("state", "submitted"), ("decided_at__isnull", False), _connector="XOR"
                        ),
                        name="catalog_proposal_decided",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="DoctorFinding",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("code", models.CharField(max_length=40)),
                ("subject", models.CharField(blank=True, max_length=600)),
                (
                    "severity",
                    models.CharField(
                        choices=[("error", "error"), ("warning", "warning"), ("note", "note")],
                        max_length=8,
                    ),
                ),
                ("body", models.JSONField(default=dict)),
                ("first_seen", models.DateTimeField()),
                ("last_seen", models.DateTimeField()),
                ("resolved_at", models.DateTimeField(blank=True, null=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        to="clusters.cluster",
                    ),
                ),
            ],
            options={
                "ordering": ["first_seen", "pk"],
                "indexes": [models.Index(fields=["resolved_at"], name="doctor_finding_open")],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(
                            ("cluster__isnull", False), ("resolved_at__isnull", True)
                        ),
                        fields=("cluster", "code", "subject"),
                        name="doctor_finding_open_once",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(
                            ("cluster__isnull", True), ("resolved_at__isnull", True)
                        ),
                        fields=("code", "subject"),
                        name="doctor_finding_portal_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("last_seen__gte", models.F("first_seen"))),
                        name="doctor_finding_forward",
                    ),
                ],
            },
        ),
    ]
