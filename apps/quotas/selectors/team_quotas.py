"""Sums of quotas, by team and by tier."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from math import fsum

from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.domain.tiers import UNASSIGNED
from apps.quotas.domain.keys import Counting, QuotaSource
from apps.quotas.domain.saturation import sum_known
from apps.quotas.selectors.observed_quotas import ObservedKey
from apps.quotas.selectors.quota_state import QuotaState, held_units, quota_state, suppressed_units
from apps.quotas.selectors.rows import QuotaFilters, QuotaShare, QuotaSum


def team_quotas(at: datetime) -> list[QuotaSum]:
    """Return the sums of teams: what ResourceQuotas allow and count, by team and resource.

    They are GPUs at the level of a team, which everybody may see. Of several quotas on one
    resource of a namespace the least counts; those with scopes, which limit some pods only, and
    those that limit nothing are left out. Queries as of `quota_rows` without a filter of clusters.
    """
    state = quota_state(at, QuotaFilters(), Visibility(everything=False), every_cluster=True)
    least = _least(state.there.keys)
    state.read_pods(least)
    return _sums(state, least)


def limits_of_tier(at: datetime, tier: str) -> list[ObservedKey]:
    """Return what limits a tier: of a namespace the least quota on a resource, and all queues."""
    state = quota_state(at, QuotaFilters(tier=(tier,), effective=True), EVERYTHING)
    return [*_least(state.shown), *(one for one in state.shown if not one.namespace)]


def quota_shares(
    at: datetime, *, team: str, resource: str, unit: str, visibility: Visibility
) -> tuple[QuotaSum, list[QuotaShare]] | None:
    """Return a sum of `team_quotas` and what each quota adds; None where there is no such sum.

    The shares are for who sees the team; others see the sum alone. Queries as of `quota_rows`.
    """
    state = quota_state(at, QuotaFilters(), visibility, every_cluster=True)
    wanted = (resource, unit)
    least = _least(
        one for one in state.there.keys if (one.meaning.resource, state.unit(one)) == wanted
    )
    state.find_teams(least)
    own = [one for one in least if (state.team(one) or UNASSIGNED) == team]
    if not own:
        return None
    state.read_pods(own)
    total = _sum(state, team, resource, own)
    if not all(visibility.sees(span.team_id) for one in own for span in state.teams(one)):
        # All or none: what is left out could be told from the sum and the rest.
        return total, []
    return total, [
        QuotaShare(
            *(one.cluster, one.namespace, one.name, one.key, one.hard, one.used),
            held=held_units(state, one),
            suppressed=suppressed_units(state, one),
        )
        for one in own
    ]


def _least(keys: Iterable[ObservedKey]) -> list[ObservedKey]:
    """Return of the quotas on one resource of a namespace the one that allows the least."""
    least: dict[tuple[int, str, str, Counting], ObservedKey] = {}
    for one in keys:
        if one.source != QuotaSource.RESOURCE_QUOTA or one.scopes or not one.meaning.effective:
            continue
        place = (one.cluster_id, one.namespace, one.meaning.resource, one.meaning.counting)
        # All quotas of a namespace hold at once: their sum would allow what none of them does.
        if place not in least or one.hard < least[place].hard:
            least[place] = one
    return list(least.values())


def _sums(state: QuotaState, least: Iterable[ObservedKey]) -> list[QuotaSum]:
    groups: dict[tuple[str, str, Counting], list[ObservedKey]] = defaultdict(list)
    for one in least:
        team = state.team(one) or UNASSIGNED
        # Claims of a device class and requests of a resource may share a name, and are never added
        # up.
        groups[team, one.meaning.resource, one.meaning.counting].append(one)
    return [
        _sum(state, team, resource, rows) for (team, resource, _), rows in sorted(groups.items())
    ]


def _sum(state: QuotaState, team: str, resource: str, rows: Sequence[ObservedKey]) -> QuotaSum:
    return QuotaSum(
        team=team,
        resource=resource,
        unit=state.unit(rows[0]),
        tiers=state.tiers(rows[0]),
        hard=fsum(one.hard for one in rows),
        used=sum_known(one.used for one in rows),
        held=sum_known(held_units(state, one) for one in rows),
        suppressed=sum_known(suppressed_units(state, one) for one in rows),
        as_of=min((one.as_of for one in rows if one.as_of is not None), default=None),
        stale=any(one.stale for one in rows),
        from_series=any(one.from_series for one in rows),
    )
