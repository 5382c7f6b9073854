"""Limits that somebody set in quotas and queues of which the scenario tells.

They hold from then on, whatever limits the scenario has later. Its work takes no notice: it
requests GPUs there as its trace says. They are kept in memory alone, and the metrics do not show
them: a lab that is started again is as the scenario has it.
"""

from collections.abc import Callable, Iterator
from threading import Lock
from typing import Final

from msgspec import Struct

from simulator.kubernetes.objects import Object
from simulator.kubernetes.status import forbidden, not_allowed
from simulator.kubernetes.writes import WriteRequest, patched, sent_object, taken
from simulator.responses import Response, json_response
from simulator.scheduler.store import copied

LIMITS: Final = {"resourcequotas": "hard", "clusterqueues": "resourceGroups"}
"""The field of `spec` that can be set, by kind."""


class Edit(Struct, frozen=True):
    """What was set in one object, from the version `since` on."""

    since: int
    limits: Object
    managers: list[Object]
    generation: int | None


class Edits:
    """What was set in each object, the newest last; for any number of threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._made: dict[tuple[str, str], list[Edit]] = {}
        self.version = 0

    def answer(
        self, asked: WriteRequest, look: Callable[[], Object], stamp: Callable[[], int]
    ) -> Response:
        """Set limits as asked in what `look` returns, at the version of `stamp`. Raises Refused."""
        if asked.method not in {"PATCH", "PUT"}:
            return not_allowed()
        with self._lock:
            old, version = look(), stamp()
            new = patched(asked, old) if asked.method == "PATCH" else sent_object(asked)
            new = taken(asked, old, new, version // 1000)
            _check_limits_alone(asked, old, new)
            if new == old:
                return json_response(old)
            made = _edit(asked, new, version)
            if not asked.dry:
                self._made.setdefault(_key(asked), []).append(made)
                self.version = version
            return json_response(_with(made, asked.collection.plural, old))

    def over(self, plural: str, key: str, item: Object, at_ms: int) -> Object:
        """Return an object of the scenario with what was set in it by a version."""
        found = self._made.get((plural, key), ())
        made = next((edit for edit in reversed(found) if edit.since <= at_ms), None)
        return item if made is None else _with(made, plural, item)

    def between(self, plural: str, after_ms: int, until_ms: int) -> Iterator[tuple[int, str]]:
        """Yield (version, key) of what was set after a version and up to another."""
        for (kind, key), made in list(self._made.items()):
            if kind == plural:
                yield from (
                    (edit.since, key) for edit in list(made) if after_ms < edit.since <= until_ms
                )


def _key(asked: WriteRequest) -> tuple[str, str]:
    name = f"{asked.namespace}/{asked.name}" if asked.namespace else asked.name
    return asked.collection.plural, name


def _edit(asked: WriteRequest, new: Object, version: int) -> Edit:
    generation = new["metadata"].get("generation")
    return Edit(
        since=version,
        limits=copied(new["spec"][LIMITS[asked.collection.plural]]),
        managers=copied(new["metadata"].get("managedFields", [])),
        generation=None if generation is None else generation + 1,
    )


def _with(made: Edit, plural: str, item: Object) -> Object:
    """Return an object with what was set in it; its quota takes its limits at once."""
    found = copied(item)
    field = LIMITS[plural]
    found["spec"][field] = copied(made.limits)
    if plural == "resourcequotas":
        found["status"][field] = copied(made.limits)
    meta = found["metadata"]
    meta["managedFields"] = copied(made.managers)
    meta["resourceVersion"] = str(max(made.since, int(meta["resourceVersion"])))
    if made.generation is not None:
        meta["generation"] = made.generation
    return dict(found)


def _check_limits_alone(asked: WriteRequest, old: Object, new: Object) -> None:
    """Raise where more than limits would change."""
    field = LIMITS[asked.collection.plural]
    if not _same_but_for(field, old, new):
        text = (
            f'{asked.collection.plural} "{asked.name}" is forbidden: ValidatingAdmissionPolicy '
            "'lab' with binding 'lab' denied request: of what the lab's scenario tells only "
            f"spec.{field} can be changed"
        )
        raise forbidden(text, asked.name, asked.collection.plural)


def _same_but_for(field: str, old: Object, new: Object) -> bool:
    spec = new.get("spec")
    if not isinstance(spec, dict) or not isinstance(spec.get(field), type(old["spec"][field])):
        return False
    told = [
        [item["metadata"].get(name) or {} for name in ("labels", "annotations")]
        for item in (old, new)
    ]
    return told[0] == told[1] and {**old["spec"], field: None} == {**spec, field: None}
