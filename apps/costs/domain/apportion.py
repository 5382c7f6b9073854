"""Dividing a whole number among several so that nothing is lost: the largest remainder."""

from collections.abc import Sequence


def apportioned(total: int, weights: Sequence[int]) -> list[int]:
    """Divide `total` in proportion to `weights`; the parts sum to it exactly.

    Each part is its exact share rounded down, and those with the largest remainders get one
    more; of equal remainders the earlier place wins, so the same call gives the same parts.
    A negative total is divided like its opposite, so that taking back undoes giving.
    A part differs from its exact share by less than 1.
    Raises ValueError for a negative weight, and where a total has nobody to go to.
    """
    if total < 0:
        return [-part for part in apportioned(-total, weights)]
    if any(weight < 0 for weight in weights):
        raise ValueError(f"weights must not be negative: {list(weights)}")
    whole = sum(weights)
    if not whole:
        if total:
            raise ValueError("nothing to divide by: all weights are 0")
        return [0] * len(weights)
    shares = [divmod(total * weight, whole) for weight in weights]
    parts = [share for share, _ in shares]
    left = total - sum(parts)
    first = sorted(range(len(shares)), key=lambda place: (-shares[place][1], place))
    for place in first[:left]:
        parts[place] += 1
    return parts


def divided(totals: Sequence[int], weights: Sequence[int]) -> list[list[int]]:
    """Divide several totals among the same places, so that both ways of adding up are exact.

    A row of the answer is a total's parts, and sums to it; what a place gets of all totals is its
    weight, where the weights sum to the totals. Where they do not, they are first divided anew.
    Neither may be negative. Without a place that has a weight all goes to the first; without any
    place the rows are empty.
    """
    whole = sum(totals)
    left = list(weights)
    if sum(left) != whole and left:
        left = apportioned(whole, left if any(left) else [1, *[0] * (len(left) - 1)])
    rows = []
    for total in totals:
        # No part exceeds what its place has left: the total is at most the sum of that.
        parts = apportioned(total, left) if any(left) else [0] * len(left)
        left = [rest - part for rest, part in zip(left, parts, strict=True)]
        rows.append(parts)
    return rows
