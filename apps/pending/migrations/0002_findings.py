"""What was diagnosed becomes data; the sentences of rows from before are carried over as text."""

from typing import Any

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

_OLD = ("explanation", "node_reasons", "context", "suggestions", "in_front")
_ALSO = "Also needed: "


def findings_from(row: Any) -> dict[str, Any]:
    """Return the findings of a row from before: its sentences as they were written."""
    explanation = [["text", {"text": row.explanation}]] if row.explanation else []
    found = {
        "sentences": explanation,
        "node_reasons": row.node_reasons,
        "context": row.context,
        "suggestions": [_suggestion(one) for one in row.suggestions],
        "blockers": row.in_front,
    }
    return {name: value for name, value in found.items() if value}


def _suggestion(old: dict[str, Any]) -> dict[str, Any]:
    # Who holds what is to be freed is told from `change`, to those who may know.
    text = old["text"].partition(", held by ")[0].removesuffix(".") + "."
    own = {
        "action": old["action"],
        "change": old["change"],
        "sentence": ["text", {"text": text.removeprefix(_ALSO)}],
    }
    return own | ({"relation": "also"} if text.startswith(_ALSO) else {})


def carry_over(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    episodes = apps.get_model("pending", "Episode")._default_manager
    episodes = episodes.using(schema_editor.connection.alias)
    part = []
    for row in episodes.exclude(explanation="").only(*_OLD).order_by("pk").iterator(2000):
        row.findings = findings_from(row)
        part.append(row)
        if len(part) == 2000:
            episodes.bulk_update(part, ["findings"])
            part = []
    episodes.bulk_update(part, ["findings"])


class Migration(migrations.Migration):
    dependencies = [("pending", "0001_initial")]

    operations = [
        migrations.AddField("episode", "findings", models.JSONField(default=dict)),
        migrations.RunPython(carry_over, migrations.RunPython.noop),
        *(migrations.RemoveField("episode", name) for name in _OLD),
    ]
