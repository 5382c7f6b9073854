from django.db import migrations

UNSEEN = ("before recording", "not watched")


def name_them(apps, schema_editor):
    """Give waits that nobody watched a cause of their own; sums of days are made anew."""
    database = schema_editor.connection.alias
    for model in ("CauseSpell", "Episode"):
        rows = apps.get_model("pending", model).objects.using(database)
        rows.filter(cause="other", detail__in=UNSEEN).update(cause="unrecorded")
    apps.get_model("pending", "Refreshed").objects.using(database).update(rolled_to=None)


def forget_them(apps, schema_editor):
    database = schema_editor.connection.alias
    for model in ("CauseSpell", "Episode", "WaitDay"):
        rows = apps.get_model("pending", model).objects.using(database)
        rows.filter(cause__in=("unschedulable", "unrecorded")).update(cause="other")


class Migration(migrations.Migration):
    dependencies = [
        ("pending", "0002_causes_of_series"),
    ]

    operations = [migrations.RunPython(name_them, forget_them)]
