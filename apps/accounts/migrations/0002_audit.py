from django.db import migrations, models


class Migration(migrations.Migration):
    """Take over the audit from the room of quota requests, which made its tables."""

    dependencies = [("accounts", "0001_initial")]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.CreateModel(
                    name="AuditHead",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True,
                                primary_key=True,
                                serialize=False,
                                verbose_name="ID",
                            ),
                        ),
                        ("number", models.PositiveBigIntegerField()),
                        ("digest", models.CharField(max_length=64)),
                    ],
                    options={"db_table": "quota_requests_audithead"},
                ),
                migrations.CreateModel(
                    name="AuditEntry",
                    fields=[
                        (
                            "number",
                            models.PositiveBigIntegerField(primary_key=True, serialize=False),
                        ),
                        ("at", models.CharField(max_length=32)),
                        ("actor", models.CharField(max_length=150)),
                        ("origin", models.CharField(max_length=200)),
                        ("action", models.CharField(max_length=40)),
                        ("subject", models.CharField(max_length=200)),
                        ("before", models.TextField(blank=True)),
                        ("after", models.TextField(blank=True)),
                        ("note", models.TextField(blank=True)),
                        ("previous", models.CharField(max_length=64)),
                        ("digest", models.CharField(max_length=64)),
                    ],
                    options={
                        "db_table": "quota_requests_auditentry",
                        "ordering": ["number"],
                        "indexes": [
                            models.Index(fields=["subject", "number"], name="audit_of_subject")
                        ],
                    },
                ),
            ]
        )
    ]
