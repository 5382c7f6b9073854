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
