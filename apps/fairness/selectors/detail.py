"""Everything about one tier over a window, each of its sums read once."""

from datetime import datetime

from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window
from apps.fairness.selectors.loans import loans_of, matrix_of
from apps.fairness.selectors.measures.over_time import days_of
from apps.fairness.selectors.rows import TierDetail
from apps.fairness.selectors.tiers import tier_rows, window_sums


def tier_detail(
    window: Window, tier: str, *, now: datetime, visibility: Visibility
) -> TierDetail | None:
    """Return a tier's teams, who borrowed from whom, and its indices by day.

    Its row is as `fairness_rows` tells it. None where nothing is known of the tier in the window.
    Everybody may see it: `visibility` narrows nothing. At most 31 queries.
    """
    read = window_sums(window, (tier,))
    rows = tier_rows(read, now=now)
    if not rows:
        return None
    (pk,) = read.tiers
    loans = loans_of(read.parts, read.tiers)[pk]
    matrix = matrix_of(tier, loans, read.of_teams[pk], read.teams)
    return TierDetail(rows[0], matrix, tuple(days_of(read.parts, pk)))
