from django.db import migrations


class Migration(migrations.Migration):
    """Tokens of the package used before; its table would keep people from being deleted."""

    dependencies = [("accounts", "0002_groups_rounds_and_tokens")]

    operations = [
        migrations.RunSQL("DROP TABLE IF EXISTS authtoken_token", migrations.RunSQL.noop),
    ]
