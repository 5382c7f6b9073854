"""Raises of a team that stand since a short while, by which parts of one large raise are seen."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from math import fsum
from typing import Any

from django.db.models import Q

from apps.quota_requests.domain.approval_policy import LATELY_DAYS, RecentIncreases
from apps.quota_requests.domain.quantities import quantity
from apps.quota_requests.domain.states import RequestState
from apps.quota_requests.models import ChangeRequest

_STANDING = [
    *(RequestState.APPROVED.value, RequestState.APPLYING.value, RequestState.FAILED.value),
    *(RequestState.APPLIED.value, RequestState.REVERTING.value),
]
_COLUMNS = (
    *("tiers", "before", "after", "by_rule", "ruling__gpus"),
    *("ruling__cost_per_month", "preview__cost_per_month_most", "preview__currency"),
)


def recent_increases(request: ChangeRequest, *, currency: str, now: datetime) -> RecentIncreases:
    """Return what the team was let have lately in the tiers that a request reaches. One query.

    Raises that one person or a rule decided on in the last 30 days and that were not taken back;
    what two people decided on was looked at as a large one. Decreases take nothing off: else a
    limit that nobody needs could be given up for one that many want.
    """
    stands = Q(state__in=_STANDING) | Q(state=RequestState.EXPIRED.value, applied_at__isnull=False)
    rows = ChangeRequest.objects.filter(
        stands,
        team=request.team_id,
        approvals_needed=1,
        decided_at__gt=now - timedelta(days=LATELY_DAYS),
    ).exclude(pk=request.pk)
    found = [_Raise(*row) for row in rows.order_by("pk").values_list(*_COLUMNS)]
    raises = [one for one in found if one.is_raise and one.reaches(request.tiers)]
    return RecentIncreases(
        by_rule_gpus=_sum(one.gpus for one in raises if one.by_rule),
        gpus=_sum(one.gpus for one in raises),
        cost=_cost(one.cost_in(currency) for one in raises),
    )


class _Raise:
    """A row of `_COLUMNS`."""

    def __init__(self, *row: Any) -> None:
        self.tiers, self.before, self.after, self.by_rule, self._gpus, *rest = row
        ruled, shown, self._in = rest
        # Requests that were submitted before rulings kept their cost have that of the preview.
        self._cost = shown if ruled is None else ruled

    @property
    def is_raise(self) -> bool:
        return quantity(self.after) > quantity(self.before)

    def reaches(self, tiers: Iterable[str]) -> bool:
        return bool(set(self.tiers) & set(tiers))

    @property
    def gpus(self) -> float | None:
        return None if self._gpus is None else float(self._gpus)

    def cost_in(self, currency: str) -> Decimal | None:
        is_known = self._cost is not None and self._in == currency
        return Decimal(self._cost) if is_known else None


def _sum(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return None if None in known else fsum(value for value in known if value is not None)


def _cost(values: Iterable[Decimal | None]) -> Decimal | None:
    known = list(values)
    return None if None in known else sum((v for v in known if v is not None), Decimal(0))
