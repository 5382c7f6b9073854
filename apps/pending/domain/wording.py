"""Amounts, nodes and lists as sentences say them."""

from collections.abc import Sequence

from apps.clusters.domain.quantities import quantity

_BYTES = (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))
_IN_BYTES = ("memory", "ephemeral-storage", "hugepages-", "storage")


def amount(resource: str, value: float) -> str:
    """Return an amount of a resource, as `8 nvidia.com/gpu`, `500 CPU` or `4 Ti memory`."""
    name = resource.removeprefix("requests.").removeprefix("limits.")
    if name.startswith(_IN_BYTES):
        for unit, size in _BYTES:
            if value >= size:
                return f"{quantity(value / size)} {unit} {name}"
        return f"{quantity(value)} bytes of {name}"
    return f"{quantity(value)} {'CPU' if name == 'cpu' else name}"


def amounts(requests: Sequence[tuple[str, float]]) -> str:
    """Return several amounts as one list."""
    return listed([amount(resource, value) for resource, value in requests]) or "nothing"


def listed(names: Sequence[str], most: int = 3) -> str:
    """Return `a, b and c`; of more than `most` the rest as a number."""
    shown = list(names[:most])
    if len(names) > most:
        shown.append(f"{len(names) - most} more")
    if len(shown) < 2:
        return "".join(shown)
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def count(n: int, noun: str) -> str:
    """Return `1 node`, `3 nodes`."""
    return f"{n} {noun}{'' if n == 1 else 's'}"
