from django.db import migrations


class Migration(migrations.Migration):
    """Hand the audit over to the room of accounts; its tables and triggers stay as they are."""

    dependencies = [("accounts", "0002_audit"), ("quota_requests", "0001_initial")]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.DeleteModel(name="AuditEntry"),
                migrations.DeleteModel(name="AuditHead"),
            ]
        )
    ]
