"""All facts of a portal in a form that two portals can be compared in.

Tables are found from the models, so that one that is added is compared too, unless it is said
here why it is no fact. Ids and times of writing are left out: what refers to another row has the
words by which that one is unique instead.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from django.apps import apps
from django.db import connection
from django.db.models import Field, Model, UniqueConstraint

Row = tuple[Any, ...]
AnyField: TypeAlias = "Field[Any, Any]"
Read = Callable[[str], Sequence[Row]]
"""Returns the rows of a query."""
Facts = Mapping[str, Sequence[Row]]
"""Table → its rows, sorted."""

NO_FACTS: Mapping[str, str] = {
    "accounts": "who may do what; the audit has the time of everything",
    "alerts": "messages about facts, sent at some time",
    "operations": "how the portal itself is: checks, runs, heartbeats",
    "quota_requests": "decisions of people",
    "clusters_watchissue": "what keeps the watch now, gone once it is well",
    "clusters_podrevision": "counts the changes of pods, so that sums know what they rest on",
    "usage_exportersetup": "how exporters describe themselves, as far as a server tells it",
    "pending_refreshstate": "how far the refresh of pending work has come, by ids",
    "fairness_recomputecursor": "how far fairness has come, by ids",
    "costs_recommendationrun": "when recommendations were looked for",
    "costs_export": "files that people asked for",
}
"""Room or table → why it is no fact."""

WRITING: Mapping[str, str] = {
    "usage_collectionwindow.attempts": "how often an hour was tried",
    "usage_collectionwindow.partials": "how often in a row it was partial",
    "usage_collectionwindow.duration_seconds": "how long it took",
    "usage_collectionwindow.exporters_id": "how exporters described themselves at that try",
    "usage_collectionwindow.lease_until": "until when it is at work",
    "usage_collectionwindow.attempted_at": "when it was tried",
    "usage_collectionwindow.collected_at": "when it was written",
    "quotas_quotahour.collected_at": "which writing of the hour it rests on",
    "quotas_quotahour.pod_revision": "which change of pods it rests on",
    "costs_pricedhour.facts_at": "which writing of the hour it rests on",
    "fairness_fairnesswindow.computed_at": "when it was written",
    "fairness_fairnesswindow.facts": "which writing of the hour it rests on",
    "goodput_reliabilityreport.computed_at": "when it was written",
    "goodput_reliabilityreport.facts_at": "which writing of its hours it rests on",
    "goodput_storedlossday.computed_at": "when it was written",
    "goodput_storedlossday.basis": "which writing of its hours and pods it rests on",
    "planning_slothour.collected_at": "which writing of the hour it rests on",
    "planning_slothour.pod_revision": "which change of pods it rests on",
    "clusters_pod.revised_at": "when it was written",
    "clusters_device.looked_at": "when it was written",
}
"""table.column → what it tells of writing rather than of the cluster."""

WITHOUT_IDS: Mapping[str, Callable[[str], str]] = {
    # "rows:newest id" of the day's pending sums.
    "fairness_fairnessday.waits": lambda told: told.partition(":")[0],
}
"""table.column → what is left of a text once ids are taken out of it."""


def fact_models() -> list[type[Model]]:
    """Return the models whose rows are facts."""
    return [
        model
        for model in apps.get_models()
        if model.__module__.startswith("apps.")
        and model._meta.app_label not in NO_FACTS
        and model._meta.db_table not in NO_FACTS
    ]


def facts(read: Read | None = None) -> Facts:
    """Return all facts, read through `read` or from this process's database."""
    found = _Facts(read or _read_here)
    return {model._meta.db_table: found.rows(model) for model in fact_models()}


def differences(expected: Facts, found: Facts) -> list[str]:
    """Return what differs, table by table: rows that lack and rows too many."""
    lines = []
    for table, rows in expected.items():
        others = list(found[table])
        for row in rows:
            if row in others:
                others.remove(row)
            else:
                lines.append(f"{table} lacks {row}")
        lines += [f"{table} has   {row}" for row in others]
    return lines


def _read_here(query: str) -> Sequence[Row]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        rows: list[Row] = cursor.fetchall()
        return rows


class _Facts:
    def __init__(self, read: Read) -> None:
        self._read = read
        self._names: dict[type[Model], dict[Any, Row]] = {}

    def rows(self, model: type[Model]) -> list[Row]:
        """Return the rows of a model, sorted, each a tuple of (column, value)."""
        fields = [one for one in model._meta.concrete_fields if not _is_left_out(model, one)]
        return sorted((row for _, row in self._named(model, fields)), key=repr)

    def _named(self, model: type[Model], fields: Sequence[AnyField]) -> list[tuple[Any, Row]]:
        """Return (id, values of the fields as words) of each row."""
        pk = model._meta.pk
        assert pk is not None
        columns = ", ".join(f'"{one.column}"' for one in (pk, *fields))
        made = []
        for key, *values in self._read(f'SELECT {columns} FROM "{model._meta.db_table}"'):  # noqa: S608 - our own names
            row = tuple(
                (one.column, self._word(one, _without_ids(model, one, value)))
                for one, value in zip(fields, values, strict=True)
            )
            made.append((key, row))
        return made

    def _word(self, field: AnyField, value: Any) -> Any:
        if value is None:
            return None
        other = field.related_model
        if isinstance(other, type):
            return self._names_of(other)[value]
        if field.get_internal_type() == "JSONField":
            given = json.loads(value) if isinstance(value, str | bytes) else value
            return json.dumps(given, sort_keys=True)
        return bytes(value) if isinstance(value, memoryview) else value

    def _names_of(self, model: type[Model]) -> dict[Any, Row]:
        """Return id → the words by which a row is unique."""
        if model not in self._names:
            self._names[model] = dict(self._named(model, _unique(model)))
        return self._names[model]


def _unique(model: type[Model]) -> list[AnyField]:
    """Return fields by which a row is told from others: its unique ones, else all."""
    fields = {one.name: one for one in model._meta.concrete_fields}
    for constraint in model._meta.constraints:
        if isinstance(constraint, UniqueConstraint) and not constraint.condition:
            return [fields[name] for name in constraint.fields]
    alone = [one for one in fields.values() if one.unique and not one.primary_key]
    return alone[:1] or [one for one in fields.values() if not _is_left_out(model, one)]


def _without_ids(model: type[Model], field: AnyField, value: Any) -> Any:
    shorten = WITHOUT_IDS.get(f"{model._meta.db_table}.{field.column}")
    return shorten(value) if shorten is not None else value


def _is_left_out(model: type[Model], field: AnyField) -> bool:
    is_id = field.primary_key and field.get_internal_type().endswith("AutoField")
    return is_id or f"{model._meta.db_table}.{field.column}" in WRITING
