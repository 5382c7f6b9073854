from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0006_pod_revisions"),
    ]

    operations = [
        migrations.AddField(
            model_name="pod",
            name="unschedulable",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name="pod",
            name="revised_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddIndex(
            model_name="pod",
            index=models.Index(
                condition=Q(revised_at__isnull=False),
                fields=["cluster", "revised_at"],
                name="pod_revised",
            ),
        ),
    ]
