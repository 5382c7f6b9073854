"""Which pending work counts as demand."""

from django.db.models import Q

from apps.pending.domain.causes import OF_DEMAND, Cause, Counts
from apps.pending.domain.placement.node_search import NONE_OFFERED

_PENDING = (Counts.PENDING.value, Counts.SUPPRESSED.value)
_CAUSES = tuple(sorted(cause.value for cause in OF_DEMAND))
_IMPOSSIBLE = Q(cause=Cause.CAPACITY.value, detail=NONE_OFFERED)
"""No node offers it: nobody is denied what nobody could have."""


def counted_causes() -> Q:
    """Return the condition on intervals (CauseInterval) that are demand for fairness and
    what-if.
    """
    return Q(counts__in=_PENDING, cause__in=_CAUSES, counted__gt=0) & ~_IMPOSSIBLE
