"""Exact tails and ranges of counts."""

from collections.abc import Callable
from math import exp, lgamma, log

_TAIL = 0.025


def poisson_tail(count: int, mean: float) -> float:
    """Return the chance of `count` or more where `mean` are expected."""
    return 1.0 if count == 0 else max(0.0, 1.0 - _below(count, mean))


def poisson_range(count: int) -> tuple[float, float]:
    """Return the means for which `count` is within the middle 95 %: the exact interval."""
    low = 0.0 if count == 0 else _root(lambda mean: poisson_tail(count, mean) - _TAIL, count)
    high = _root(lambda mean: _TAIL - _below(count + 1, mean), 2 * count + 10)
    return low, high


def binomial_tail(count: int, of: int, share: float) -> float:
    """Return the chance that `count` or more `of` so many fall to a part that has this share."""
    if count == 0 or share >= 1:
        return 1.0
    if share <= 0:
        return 0.0
    first = lgamma(of + 1)
    return min(
        1.0,
        sum(
            exp(first - lgamma(k + 1) - lgamma(of - k + 1) + k * log(share))
            * (1 - share) ** (of - k)
            for k in range(count, of + 1)
        ),
    )


def _below(count: int, mean: float) -> float:
    """Return the chance of less than `count`."""
    if mean <= 0:
        return 1.0
    # By logarithms: powers and factorials of some hundred failures overflow a float.
    return sum(exp(k * log(mean) - mean - lgamma(k + 1)) for k in range(count))


def _root(rising: Callable[[float], float], above: float) -> float:
    """Return where a rising function is zero, between 0 and `above`."""
    low, high = 0.0, float(above)
    while rising(high) < 0:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low + high) / 2
