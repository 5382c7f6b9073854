"""Everything about one tier over a window, each of its sums read once."""

from datetime import datetime

from apps.accounts.permissions import Visibility
from apps.accounts.selectors import team_names
from apps.clusters.domain.window import Window
from apps.fairness.selectors.loans import loans_of, matrix_of
from apps.fairness.selectors.measures.over_time import days_of
from apps.fairness.selectors.measures.sums import parts_of, team_sums
from apps.fairness.selectors.names import tier_names
from apps.fairness.selectors.rows import TierDetail
from apps.fairness.selectors.tiers import tier_rows


def tier_detail(
    window: Window, tier: str, *, now: datetime, visibility: Visibility
) -> TierDetail | None:
    """Return a tier's teams, who borrowed from whom, and its indices by day.

    Its row is as `fairness_rows` tells it. None where nothing is known of the tier in the window.
    Everybody may see it: `visibility` narrows nothing. At most 31 queries.
    """
    tiers, parts, names = tier_names((tier,)), parts_of(window), team_names()
    sums = team_sums(parts, tiers)
    rows = tier_rows(window, tiers, parts, sums, names, now=now)
    if not rows:
        return None
    (pk,) = tiers
    matrix = matrix_of(tier, loans_of(parts, tiers)[pk], sums[pk], names)
    return TierDetail(rows[0], matrix, tuple(days_of(parts, pk)))
