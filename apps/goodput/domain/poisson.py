"""Exact tails and ranges of counts."""

from collections.abc import Callable, Sequence
from math import ceil, exp, lgamma, log, log1p
from typing import NamedTuple

_TAIL = 0.025
_RARE = 0.02
_MOST_RATIO = 1e6
_HALVINGS = 36


class WorkKind(NamedTuple):
    """A kind of work: its incidents anywhere, and how long it ran here and elsewhere, seconds."""

    incidents: float
    seconds: float
    elsewhere: float

    @property
    def share(self) -> float:
        """The chance, 0..1, that an incident happens here, were all places alike."""
        return self.share_at(1.0)

    def share_at(self, ratio: float) -> float:
        """Return that chance where work fails `ratio` times as often here as elsewhere."""
        weighted = ratio * self.seconds
        return weighted / (weighted + self.elsewhere)


def poisson_tail(count: int, mean: float) -> float:
    """Return the chance of `count` or more where `mean` are expected."""
    return 1.0 if count == 0 else max(0.0, 1.0 - _below(count, mean))


def share_tail(count: int, kinds: Sequence[WorkKind]) -> float:
    """Return the chance that `count` or more of all incidents happen here, were all places alike.

    What is given is how many there were of each kind, so that no rate need be known: the exact
    conditional test of Poisson rates (Przyborowski and Wilenski 1940), over all kinds at once.
    """
    mean = sum(kind.incidents * kind.share for kind in kinds)
    if count <= mean:
        return poisson_tail(count, mean)
    common, rest = [], 0.0
    for kind in kinds:
        if kind.share > _RARE:
            # Sums of parts of an incident may be a hair less than the whole that they are.
            many = int(kind.incidents + 1e-6)
            common.append((many, kind.share))
            rest += max(0.0, kind.incidents - many) * kind.share
        else:
            # A Poisson count that is 0 as often as an incident is elsewhere is never the smaller
            # one; of the mean alone, a few more than it would seem less likely than they are.
            rest -= kind.incidents * log1p(-kind.share)
    chances = _poisson(count, rest)
    for many, share in common:
        for _ in range(many):
            before = 0.0
            for number, chance in enumerate(chances):
                chances[number] = chance * (1 - share) + before * share
                before = chance
    return max(0.0, 1.0 - sum(chances))


def ratio_range(count: int, kinds: Sequence[WorkKind]) -> tuple[float | None, float | None]:
    """Return the ratios for which `count` here is within the middle 95 %; None: unbounded.

    Of one kind it is the exact range of the ratio of two Poisson rates (Clopper and Pearson 1934);
    of several, a binomial count stands for their sum that has its mean and variance.
    """
    if not kinds:
        return (None, None)
    low = _root(lambda ratio: 1 - _fewer(count, kinds, ratio) - _TAIL) if count else 0.0
    high = _root(lambda ratio: _TAIL - _fewer(count + 1, kinds, ratio))
    return low, high


def binomial_tail(count: int, of: int, share: float) -> float:
    """Return the chance that `count` or more `of` so many fall to a part that has this share."""
    if count == 0 or share >= 1:
        return 1.0
    if share <= 0:
        return 0.0
    return min(1.0, sum(_binomial(k, of, share) for k in range(count, of + 1)))


def _fewer(count: int, kinds: Sequence[WorkKind], ratio: float) -> float:
    """Return the chance of less than `count` here where work fails so many times as often."""
    shares = [(kind.incidents, kind.share_at(ratio)) for kind in kinds]
    mean = sum(many * share for many, share in shares)
    spread = sum(many * share * share for many, share in shares)
    # Of so many, the same share each has this mean; rounded up, the range gets wider.
    of = max(1, ceil(mean * mean / spread - 1e-9))
    share = min(1.0, mean / of)
    if share >= 1:
        return float(of < count)
    return min(1.0, sum(_binomial(k, of, share) for k in range(min(count, of + 1))))


def _binomial(count: int, of: int, share: float) -> float:
    ways = lgamma(of + 1) - lgamma(count + 1) - lgamma(of - count + 1)
    return exp(ways + count * log(share) + (of - count) * log1p(-share))


def _poisson(count: int, mean: float) -> list[float]:
    """Return the chances of 0 to `count` - 1."""
    if not mean:
        return [1.0, *[0.0] * count][:count]
    # By logarithms: powers and factorials of some hundred failures overflow a float.
    return [exp(k * log(mean) - mean - lgamma(k + 1)) for k in range(count)]


def _below(count: int, mean: float) -> float:
    """Return the chance of less than `count`."""
    return sum(_poisson(count, mean))


def _root(rising: Callable[[float], float]) -> float | None:
    """Return the ratio at which a rising function is 0; None where it stays below."""
    low, high = -log(_MOST_RATIO), log(_MOST_RATIO)
    if rising(exp(high)) < 0:
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(exp(middle)) < 0 else (low, middle)
    return exp(high)
