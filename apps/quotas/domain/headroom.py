"""Which ResourceQuotas count a pod, and how much they leave: the least of all that do."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from apps.clusters.domain.observed.objects import QuotaScope
from apps.quotas.domain.keys import Counting, meaning_of

_PRIORITY = "PriorityClass"


@dataclass(frozen=True, slots=True)
class Asking:
    """What scopes look at in a pod; None for what is not known of it.

    `terminating`: it has an active deadline. `best_effort`: it asks for neither CPU nor memory.
    `cross_namespace`: its pod affinity looks into other namespaces.
    """

    priority_class: str = ""
    terminating: bool | None = None
    best_effort: bool | None = None
    cross_namespace: bool | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """A ResourceQuota: its limits and what is used of them, by key."""

    name: str
    hard: Mapping[str, float]
    used: Mapping[str, float]
    scopes: tuple[QuotaScope, ...] = ()


@dataclass(frozen=True, slots=True)
class Headroom:
    """Units that may still be asked for, and the key that lets no more in.

    Below 0 where a limit was lowered under what is used. `certain` is False where a quota that
    leaves less may count the pod too, which its scopes do not tell.
    """

    units: float
    quota: str
    key: str
    certain: bool = True


def headroom(
    resource: str,
    asking: Asking,
    quotas: Iterable[Limit],
    *,
    named: Collection[str] = (),
    counting: Counting = Counting.REQUESTS,
) -> Headroom | None:
    """Return how many units of a GPU resource (or device class) a namespace's quotas leave.

    All quotas that match must let a request in, so it is the least of what each leaves; None
    where none limits it. Of equal ones the first by name is told.
    """
    sure: list[Headroom] = []
    perhaps: list[float] = []
    for quota in sorted(quotas, key=lambda one: one.name):
        counted = counts(quota.scopes, asking)
        if counted is False:
            continue
        for key, hard in sorted(quota.hard.items()):
            meaning = meaning_of(key, named=named, scopes=quota.scopes)
            if (meaning.resource, meaning.counting) != (resource, counting):
                continue
            if not (meaning.effective and meaning.of_gpus):
                continue
            left = hard - quota.used.get(key, 0.0)
            if counted is None:
                perhaps.append(left)
            else:
                sure.append(Headroom(left, quota.name, key))
    if not sure:
        return None
    least = min(sure, key=lambda one: one.units)
    doubtful = any(left < least.units for left in perhaps)
    return Headroom(least.units, least.quota, least.key, certain=not doubtful)


def counts(scopes: Sequence[QuotaScope], asking: Asking) -> bool | None:
    """Say whether a quota with these scopes counts a pod; None where that cannot be told.

    A pod must match every scope. A quota without scopes counts all pods.
    """
    answers = [_matches(scope, asking) for scope in scopes]
    if any(answer is False for answer in answers):
        return False
    return None if any(answer is None for answer in answers) else True


def scope_words(scope: QuotaScope) -> str:
    """Return a scope as it is shown: `PriorityClass In high, urgent`."""
    plain = scope.operator == "Exists" and not scope.values
    if plain:
        return scope.name
    return f"{scope.name} {scope.operator} {', '.join(scope.values)}".rstrip()


def _matches(scope: QuotaScope, asking: Asking) -> bool | None:
    if scope.name == _PRIORITY:
        return _selects(scope, asking.priority_class)
    known = {
        "Terminating": asking.terminating,
        "BestEffort": asking.best_effort,
        "CrossNamespacePodAffinity": asking.cross_namespace,
        # Of volume claims, never of pods.
        "VolumeAttributesClass": False,
    }
    answer = known.get(scope.name.removeprefix("Not"))
    return not answer if scope.name.startswith("Not") and answer is not None else answer


def _selects(scope: QuotaScope, name: str) -> bool | None:
    """Say whether a label selector's operator takes a class; a pod may have none, which is ``."""
    match scope.operator:
        case "Exists":
            return name != ""
        case "DoesNotExist":
            return name == ""
        case "In":
            return name in scope.values
        case "NotIn":
            return name not in scope.values
        case _:
            return None
