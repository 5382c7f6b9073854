"""The CEL expressions of DeviceClasses, evaluated for devices as the scheduler does."""

import logging
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from apps.clusters.domain.devices.dra import PublishedDevice
from apps.clusters.domain.resources import quantity

logger = logging.getLogger(__name__)

LONGEST = 10 * 1024
"""Characters of an expression that an API server accepts at most."""

MOST_ANSWERS = 10_000
_OVER_ALL = ("exists", "all(", "filter(", "map(", "size(")

_Answer = bool | None


def evaluate(expression: str, device: PublishedDevice) -> bool | None:
    """Say whether a device satisfies an expression; None where that cannot be worked out.

    An attribute that the device lacks is no match, as it is an error to the scheduler. Answers
    are kept by what the expression can look at, which most devices of a fleet share.
    """
    if len(expression) > LONGEST:
        return None
    everything = any(word in expression for word in _OVER_ALL)
    looked_at = tuple(
        (name, value)
        for name, value in (*device.attributes.items(), *device.capacity.items())
        if everything or name.rpartition("/")[2] in expression
    )
    return _answers().get(expression, device, looked_at)


class _Answers:
    """Programs and answers, remembered."""

    def __init__(self, most: int = MOST_ANSWERS) -> None:
        # The package loads a terminal client with it, which costs a third of a second: only
        # clusters that have device classes pay for it.
        import cel

        self._most = most
        self._compile: Callable[[str], Any] = lru_cache(maxsize=256)(cel.compile)
        self._context = cel.Context
        self._known: dict[tuple[object, ...], _Answer] = {}

    def get(
        self, expression: str, device: PublishedDevice, looked_at: tuple[object, ...]
    ) -> _Answer:
        key = (expression, device.driver, looked_at)
        if key not in self._known:
            if len(self._known) >= self._most:
                self._known.clear()
            self._known[key] = self._work_out(expression, device)
        return self._known[key]

    def _work_out(self, expression: str, device: PublishedDevice) -> _Answer:
        try:
            context = self._context(variables={"device": _variables(device)})
            for name, function in _FUNCTIONS.items():
                context.add_function(name, function)
            answer = self._compile(expression).execute(context)
        except KeyError:
            return False
        except (ValueError, TypeError, RuntimeError, ArithmeticError) as error:
            logger.info("not evaluated: %.200s: %.200s", expression, error)
            return None
        return answer if isinstance(answer, bool) else None


@lru_cache(maxsize=1)
def _answers() -> _Answers:
    return _Answers()


def _variables(device: PublishedDevice) -> dict[str, Any]:
    return {
        "driver": device.driver,
        "attributes": _by_domain(device.attributes, device.driver),
        "capacity": _by_domain(device.capacity, device.driver),
        "allowMultipleAllocations": False,
    }


def _by_domain(values: Mapping[str, Any], driver: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {driver: {}}
    for name, value in values.items():
        domain, _, own = name.rpartition("/")
        found.setdefault(domain or driver, {})[own] = value
    return found


# ---------------------------------------------------------------- Kubernetes' functions of CEL


def _compare(one: object, other: object) -> int:
    """Order quantities, which are numbers here, or semantic versions, which are texts."""
    if isinstance(one, str) and isinstance(other, str):
        first, second = _semver(one), _semver(other)
        return (first > second) - (first < second)
    if isinstance(one, int | float) and isinstance(other, int | float):
        return (one > other) - (one < other)
    raise TypeError(f"cannot compare {one!r} with {other!r}")


def _semver(text: str) -> tuple[tuple[int, int, int], bool, tuple[tuple[bool, int, str], ...]]:
    """Return a version as what orders it: a release goes after its pre-releases (semver 2.0)."""
    core, _, pre = text.partition("+")[0].partition("-")
    major, minor, patch = (int(part) for part in core.split("."))
    parts = tuple(
        (not part.isdecimal(), int(part) if part.isdecimal() else 0, part)
        for part in pre.split(".")
        if pre
    )
    return (major, minor, patch), not pre, parts


def _version(text: str) -> str:
    _semver(text)
    return text


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "quantity": quantity,
    "semver": _version,
    "compareTo": _compare,
    "isGreaterThan": lambda one, other: _compare(one, other) > 0,
    "isLessThan": lambda one, other: _compare(one, other) < 0,
    "lowerAscii": lambda text: text.lower(),
    "upperAscii": lambda text: text.upper(),
    "major": lambda text: _semver(text)[0][0],
    "minor": lambda text: _semver(text)[0][1],
    "patch": lambda text: _semver(text)[0][2],
}
