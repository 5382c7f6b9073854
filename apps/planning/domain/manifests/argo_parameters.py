"""Parameters of an Argo workflow whose values are known before it runs."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from apps.clusters.domain.kube_json import JsonObject, items, mapping, text

MARK = "{{"
"""What begins a parameter in a text."""
_PARAMETER = re.compile(r"\{\{\s*(workflow|inputs)\.parameters\.([\w-]+)\s*\}\}", re.ASCII)
_MOST_CALLS = 1_000
_LONGEST = 1_000
"""A patch may name a value thousands of times: longer ones are not written into it."""


class ArgoParameters:
    """Writes known values into texts: those of the workflow, and the inputs of its templates.

    An input is known where every call of its template gives the same value. `calls` have the name
    of the template that is called, and the step or task that calls it.
    """

    def __init__(
        self, spec: JsonObject, templates: JsonObject, calls: Iterable[tuple[str, JsonObject]]
    ) -> None:
        self._workflow = _values(mapping(spec, "arguments"))
        self._given: dict[str, list[Mapping[str, str]]] = defaultdict(list)
        # What is submitted are the inputs of the template that runs first.
        self._given[text(spec.get("entrypoint"))].append(self._workflow)
        for named, step in calls:
            if len(self._given[named]) < _MOST_CALLS:
                self._given[named].append(_values(mapping(step, "arguments")))
        self._inputs = {
            name: _values(mapping(template, "inputs")) for name, template in templates.items()
        }

    def filled(self, written: str, template: str = "") -> str:
        """Return a text of a template with the values that are known; others stay as written."""

        def value(found: re.Match[str]) -> str:
            of, name = found[1], found[2]
            known = self._workflow.get(name) if of == "workflow" else self._input(template, name)
            return found[0] if known is None else known

        return _PARAMETER.sub(value, written)

    def _input(self, template: str, name: str) -> str | None:
        usual = self._inputs.get(template, {}).get(name)
        calls = self._given.get(template, [])
        values = {call.get(name, usual) for call in calls} or {usual}
        found = values.pop()
        if values or found is None:
            return None
        # A value may be one of the workflow; what else it has is known only when it runs.
        whole = _PARAMETER.sub(
            lambda one: self._workflow.get(one[2], one[0]) if one[1] == "workflow" else one[0],
            found,
        )
        return None if MARK in whole or len(whole) > _LONGEST else whole


def _values(holder: JsonObject) -> dict[str, str]:
    """Return the parameters of arguments or inputs that have a value, or a default.

    One that is too long to be written counts as known only later.
    """
    found = {}
    for one in items(holder.get("parameters")):
        value = one.get("value", one.get("default"))
        # YAML reads 8 as a number; a parameter is the text.
        if isinstance(value, str | int | float):
            written = str(value).lower() if isinstance(value, bool) else str(value)
            found[text(one.get("name"))] = written if len(written) <= _LONGEST else MARK
    return found
