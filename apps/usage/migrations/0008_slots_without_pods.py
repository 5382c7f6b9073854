from django.db import migrations, models


def read_errors(apps, schema_editor):
    """Take over from the text of hours what was only said there."""
    rows = apps.get_model("usage", "CollectionWindow").objects
    rows = rows.using(schema_editor.connection.alias)
    rows.filter(state="partial", error__startswith="pods and nodes are unknown").update(
        slots_without_pods=1
    )


class Migration(migrations.Migration):
    dependencies = [
        ("usage", "0007_quiet_hours"),
    ]

    operations = [
        migrations.AddField(
            model_name="collectionwindow",
            name="slots_without_pods",
            field=models.PositiveSmallIntegerField(db_default=0, default=0),
        ),
        migrations.RunPython(read_errors, migrations.RunPython.noop),
    ]
