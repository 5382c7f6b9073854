"""Entitlements that are nearly used up: teams that hold or want about all they may count on."""

from dataclasses import dataclass

from apps.quotas.selectors import Entitled, entitled_teams
from apps.usage.selectors import AllocatedGpus, held_now
from apps.web.components.links import href
from apps.web.query_session import QuerySession

NEARLY = 0.8
_NOTHING = AllocatedGpus()


@dataclass(frozen=True, slots=True)
class EntitlementLine:
    """One entitlement of a team on a tier; amounts in GPU-equivalents.

    `ratio` is held ÷ entitled; `percent_held` and `percent_waiting` are of what is drawn, 0..100:
    the entitlement, or all that is held and waited for where that is more. `percent_limit` is
    where the entitlement ends in it.
    """

    team: str
    tier: str
    entitled: float
    held: float
    waiting: float
    ratio: float
    href: str | None
    tier_href: str | None
    percent_held: float
    percent_waiting: float
    percent_limit: float

    @property
    def left(self) -> float:
        """GPU-equivalents that are not held yet."""
        return max(0.0, self.entitled - self.held)

    @property
    def over(self) -> float:
        """GPU-equivalents held beyond the entitlement."""
        return max(0.0, self.held - self.entitled)


def entitlement_lines(reading: QuerySession, *, limit: int) -> list[EntitlementLine]:
    """Return the entitlements of which most is held, of all clusters. Four queries.

    Those of which less than NEARLY is held or waited for are left out. An entitlement is for all
    clusters together, so what is held is counted on all of them, whichever the page shows.
    """
    entitled = entitled_teams(reading.now, visibility=reading.visibility)
    held = held_now(reading.now, visibility=reading.visibility) if entitled else {}
    lines = [_line(row, held.get((row.team, row.tier), _NOTHING), reading) for row in entitled]
    nearly = [line for line in lines if line.held + line.waiting >= NEARLY * line.entitled]
    return sorted(nearly, key=lambda line: (-line.ratio, -line.waiting, line.team))[:limit]


def _line(row: Entitled, own: AllocatedGpus, reading: QuerySession) -> EntitlementLine:
    drawn = max(row.gpus, own.held + own.waiting)

    def percent(gpus: float) -> float:
        return round(100 * gpus / drawn, 2)

    return EntitlementLine(
        team=row.team,
        tier=row.tier,
        entitled=row.gpus,
        held=own.held,
        waiting=own.waiting,
        ratio=own.held / row.gpus,
        href=href("team", reading.query, name=row.team),
        tier_href=href("tier", reading.query, name=row.tier),
        percent_held=percent(own.held),
        percent_waiting=percent(own.waiting),
        percent_limit=percent(row.gpus),
    )
