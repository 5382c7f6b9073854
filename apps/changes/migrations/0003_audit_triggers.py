from django.db import migrations

from apps.changes.adapters.audit_triggers import backwards, forwards


class Migration(migrations.Migration):
    dependencies = [("changes", "0002_drafts_block_nobody")]

    operations = [migrations.RunPython(forwards, backwards)]
