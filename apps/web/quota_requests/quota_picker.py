"""Which quota keys a person may ask for: as lines, each with a link to the form."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from apps.accounts.permissions import can_administer, teams_led_by
from apps.accounts.selectors import leads_by_team, team_names
from apps.quota_requests.domain.targets import TargetRefused, target_of
from apps.quotas.selectors import QuotaFilters, QuotaOrder, QuotaRow, quota_rows
from apps.web.components.links import Query, href, with_query
from apps.web.query_session import QuerySession
from apps.web.quota_requests.request_input import ask_href
from apps.web.quotas.keys import Saturation, key_href, saturation

if TYPE_CHECKING:
    from apps.accounts.models import User

PER_PAGE = 25
LONGEST_TEXT = 100


@dataclass(frozen=True, slots=True)
class Asker:
    """For whose quota a person may ask: that of all teams, or of those that they lead."""

    every_team: bool
    teams: frozenset[str] = frozenset()

    @classmethod
    def of(cls, user: "User") -> "Asker":
        """Two queries at most."""
        if can_administer(user):
            return cls(every_team=True)
        led = teams_led_by(user)
        names = team_names() if led else {}
        return cls(every_team=False, teams=frozenset(names[pk] for pk in led))

    @property
    def asks(self) -> bool:
        return self.every_team or bool(self.teams)

    def ask_href(self, row: QuotaRow, query: Query = ()) -> str:
        """Return the form that asks for a key; empty where there is none for this person.

        Who leads any team may open that of a shared queue: whether the team uses it is seen there.
        """
        if not (row.effective and row.team_count and _is_target(row)):
            return ""
        is_own = row.team in self.teams if row.team is not None else bool(self.teams)
        return ask_href(row.ref, query=query) if self.every_team or is_own else ""


def _is_target(row: QuotaRow) -> bool:
    """Say whether a request can be about this key: of a Volcano queue some are not changed."""
    try:
        target_of(row.ref, named=(row.resource,))
    except TargetRefused:
        return False
    return True


@dataclass(frozen=True, slots=True)
class KeyToAsk:
    """A quota key in a short list; `ask` leads to the form, empty where one may not ask."""

    row: QuotaRow
    href: str
    ask: str
    bar: Saturation | None


def lines_of(rows: Sequence[QuotaRow], reading: QuerySession, asker: Asker) -> list[KeyToAsk]:
    return [
        KeyToAsk(
            row=row,
            href=key_href(row.ref, reading.query) or "",
            ask=asker.ask_href(row, reading.query),
            bar=saturation(row),
        )
        for row in rows
    ]


@dataclass(frozen=True, slots=True)
class QuotaChoices:
    """A page of the keys to choose from; `find` is the text that they are searched for.

    `leads` are whom those ask who may not ask themselves.
    """

    lines: Sequence[KeyToAsk]
    find: str
    next_href: str = ""
    is_narrowed: bool = False
    may_ask: bool = True
    leads: Sequence[str] = ()


def choice_of(
    user: "User", reading: QuerySession, *, find: str, cursor: str | None
) -> QuotaChoices:
    """Return the keys that a person may ask for, the fullest first."""
    asker, find = Asker.of(user), find.strip()[:LONGEST_TEXT]
    if not asker.asks:
        return QuotaChoices((), find, may_ask=False, leads=_leads_for(reading))
    own = reading.filters
    named = own.team if asker.every_team else tuple(sorted(_narrowed(asker, own.team)))
    filters = QuotaFilters(cluster=own.cluster, team=named, effective=True, text=find)
    found = quota_rows(
        reading.now,
        filters=filters,
        visibility=reading.visibility,
        cursor=cursor,
        page_size=PER_PAGE,
        order=QuotaOrder.FULLEST,
    )
    query = [*reading.query, *([("find", find)] if find else [])]
    onward = [*query, ("cursor", found.next_cursor or "")]
    return QuotaChoices(
        lines=lines_of(found.rows, reading, asker),
        find=find,
        next_href=with_query(href("new-request") or "", onward) if found.next_cursor else "",
        is_narrowed=bool(find or own.cluster or own.team),
    )


def _narrowed(asker: Asker, teams: Sequence[str]) -> frozenset[str]:
    """Return the led teams that an address names; all of them where it names none of them."""
    return asker.teams & set(teams) or asker.teams


def _leads_for(reading: QuerySession) -> list[str]:
    """Return who leads the teams that a reader is on; of who sees all, nobody in particular."""
    leads = leads_by_team() if reading.visibility.team_ids else {}
    names = {name for pk in reading.visibility.team_ids for name in leads.get(pk, ())}
    return sorted(names)
