"""What the client reads of rows: the kind of each member, and a sentence where it is another."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuportal_client.connection import PortalError, Row

_LARGEST = 1e300
"""Above it, sums and seconds of an amount overflow; no cluster has as much of anything."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a member may hold: its name in a sentence, and whether a value is such."""

    name: str
    fits: Callable[[Any], bool]


Shape = Mapping[str, Kind]


def is_number(value: Any) -> bool:
    """Return whether a value is an amount; neither true nor NaN nor an infinity is one."""
    is_numeric = isinstance(value, int | float) and not isinstance(value, bool)
    # NaN compares false, and integers without end compare without being converted.
    return is_numeric and -_LARGEST < value < _LARGEST


def _is_money(value: Any) -> bool:
    # The API writes some money as text, so that no float rounds its cents.
    try:
        return is_number(float(value) if isinstance(value, str) else value)
    except ValueError:
        return False


def _is_time(value: Any) -> bool:
    try:
        datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return False
    return True


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _maybe(kind: Kind) -> Kind:
    return Kind(f"{kind.name} or null", lambda value: value is None or kind.fits(value))


def _each(kind: Kind) -> Kind:
    return Kind(
        f"list with {kind.name} each",
        lambda value: isinstance(value, list) and all(map(kind.fits, value)),
    )


def _object(shape: Shape) -> Kind:
    return Kind(
        f"object with {', '.join(shape)}",
        lambda value: isinstance(value, dict) and _misfit(value, shape) is None,
    )


NUMBER, TEXT, MONEY = Kind("number", is_number), Kind("text", _is_text), Kind("money", _is_money)
TIME = Kind("time", _is_time)
_FLAG = Kind("true or false", lambda value: isinstance(value, bool))

CLUSTER: Shape = {"name": TEXT}
USAGE: Shape = {"allocated_gpu_hours": _maybe(NUMBER)}
WASTE: Shape = {"cost": _maybe(MONEY)}
COLLECTION: Shape = {"state": TEXT}
PENDING: Shape = {
    **dict.fromkeys(("namespace", "kind", "name", "tier", "cause", "explanation"), TEXT),
    "workload": _maybe(TEXT),
    "message": _maybe(TEXT),
    "gpu_equivalents": _maybe(NUMBER),
    "wait_seconds": _maybe(NUMBER),
    "since": _maybe(TIME),
    "as_of": _maybe(TIME),
    "stale": _FLAG,
    "suggestions": _each(_object({"text": TEXT})),
    "notes": _each(TEXT),
}
QUOTA: Shape = {
    **dict.fromkeys(("cluster", "namespace", "source", "name", "key"), TEXT),
    "unit": _maybe(TEXT),
    "hard": _maybe(NUMBER),
}
WRITTEN: Shape = {"id": NUMBER, "version": NUMBER, "state": TEXT}
PREFLIGHT: Shape = {
    **dict.fromkeys(("kind", "name", "role", "verdict", "cause", "explanation", "tier"), TEXT),
    "pods": NUMBER,
    "gpu_equivalents": _maybe(NUMBER),
    "expected_wait_seconds": _maybe(
        _object({"p10": NUMBER, "p50": NUMBER, "p90": NUMBER, "basis": TEXT})
    ),
    "position": _maybe(_object({"place": NUMBER, "of": NUMBER, "queue": TEXT})),
    "quotas": _each(_object({"name": TEXT, "key": TEXT, "left": NUMBER, "needs": NUMBER})),
    "cost_per_hour": _maybe(MONEY),
    "currency": _maybe(TEXT),
    "change": _maybe(_object({"text": TEXT})),
    "alternatives": _each(
        _object({"units": NUMBER, "resource": TEXT, "tier": TEXT, "verdict": TEXT})
    ),
    "unchecked": _each(TEXT),
}


def checked(rows: Sequence[Any], shape: Shape, source: str) -> list[Row]:
    """Return the rows of `source`, each with the members of `shape`. Raises PortalError."""
    for row in rows:
        if not isinstance(row, dict):
            raise misfit(source, "a row is no object")
        wrong = _misfit(row, shape)
        if wrong is not None:
            raise misfit(source, f"“{wrong}” of a row is no {shape[wrong].name}")
    return list(rows)


def misfit(source: str, what: str) -> PortalError:
    """Return the fault of an answer that is JSON, and not what this client reads."""
    return PortalError(
        f"The answer of {source} does not fit this client: {what}. The portal has another version, "
        "or it is no gpuportal."
    )


def _misfit(row: Row, shape: Shape) -> str | None:
    return next(
        (name for name, kind in shape.items() if name not in row or not kind.fits(row[name])), None
    )
