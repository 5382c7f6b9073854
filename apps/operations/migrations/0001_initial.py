import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("clusters", "0001_initial"),
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
