"""What would be if: what an address asks to change, and the same work before and after."""

from collections.abc import Collection, Mapping, Sequence
from math import isfinite

from django.http import HttpResponseBase, QueryDict
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters import selectors as clusters
from apps.clusters.domain.window import Window, day_start
from apps.planning import selectors as planning
from apps.planning.domain.replay import (
    AddGpus,
    ChangeImpossible,
    Entitle,
    MoveGpus,
    MoveWork,
    WhatIfChange,
)
from apps.planning.selectors import OutcomeRow, TierOutcomeRow, WhatIfReport
from apps.usage.domain.amounts import nano
from apps.web.components.formats import Format, Value
from apps.web.components.page_query import (
    DAY,
    Query,
    WindowChoice,
    figure_hrefs,
    href,
    path_of,
    with_query,
)
from apps.web.components.tables import Column, Table, TableRow
from apps.web.fairness.overview import COLUMNS, known_tiers
from apps.web.fairness.tier import simulator_tabs
from apps.web.pages import page, respond
from apps.web.query_session import PageRequest, QuerySession, query_session

LONGEST = 7
"""The most days of a replay: each of their pods is scheduled twice within one page request."""
KEYS = ("gpus", "who", "entitled", "cards", "to", "usable", "work", "work_to", "each")
_MOST = 1e6


class WhatIfInput(Struct, frozen=True):
    """What the form holds, as written, and the changes that it means; `problems` are for it."""

    fields: dict[str, str]
    changes: Sequence[WhatIfChange]
    problems: Sequence[str]


def what_if_input(
    params: QueryDict, tier: str, *, teams: Collection[str], tiers: Collection[str]
) -> WhatIfInput:
    """Return what an address asks to change of a tier; nothing that is not understood."""
    fields = {key: params.get(key, "").strip()[:253] for key in KEYS}
    changes: list[WhatIfChange] = []
    problems: list[str] = []
    # Each part of the form is read on its own, so that all problems are told at once.
    for read in (_added, _entitled, _moved, _moved_work):
        try:
            changes += read(fields, tier, teams, tiers)
        except ValueError as error:
            problems.append(str(error))
    return WhatIfInput(fields, changes, problems)


def _added(
    fields: dict[str, str], tier: str, _teams: Collection[str], _tiers: Collection[str]
) -> list[WhatIfChange]:
    gpus = _number(fields["gpus"], "GPUs to add")
    # Adding 0 GPUs is no change, and would replay days of pods for nothing.
    return [AddGpus(tier, gpus)] if gpus else []


def _entitled(
    fields: dict[str, str], tier: str, teams: Collection[str], _tiers: Collection[str]
) -> list[WhatIfChange]:
    gpus = _number(fields["entitled"], "entitlement")
    if gpus is None and not fields["who"]:
        return []
    if gpus is None or not fields["who"]:
        raise ValueError("Another entitlement needs a team and a number of GPUs.")
    return [Entitle(_team_of(fields["who"], teams), tier, gpus)]


def _moved(
    fields: dict[str, str], tier: str, _teams: Collection[str], tiers: Collection[str]
) -> list[WhatIfChange]:
    gpus = _number(fields["cards"], "number of GPUs")
    if not gpus and not fields["to"]:
        return []
    if not gpus or not fields["to"]:
        raise ValueError("To move GPUs, give their number and the tier that they are to serve.")
    to = _other_tier(fields["to"], tier, tiers, "GPUs")
    usable = _number(fields["usable"], "usable part of a GPU")
    return [MoveGpus(gpus, tier, to, 1.0 if usable is None else usable)]


def _moved_work(
    fields: dict[str, str], tier: str, teams: Collection[str], tiers: Collection[str]
) -> list[WhatIfChange]:
    if not fields["work"] and not fields["work_to"]:
        return []
    if not fields["work"] or not fields["work_to"]:
        raise ValueError("Moving work needs whose, and the tier that it is to ask in.")
    team = _team_of(fields["work"], teams)
    to = _other_tier(fields["work_to"], tier, tiers, "work")
    each = _number(fields["each"], "GPUs for each GPU")
    return [MoveWork(team, tier, to, 1.0 if each is None else each)]


def _team_of(name: str, teams: Collection[str]) -> str:
    if name not in teams:
        raise ValueError(f"There is no team “{name[:80]}”.")
    return name


def _other_tier(name: str, tier: str, tiers: Collection[str], what: str) -> str:
    if name not in tiers or name == tier:
        raise ValueError(f"There is no other tier “{name[:80]}” to move {what} to.")
    return name


def _number(text: str, what: str) -> float | None:
    if not text:
        return None
    try:
        number = float(text.replace(" ", ""))  # a plus sign that was not escaped arrives as a blank
    except ValueError:
        number = float("nan")
    if not isfinite(number) or abs(number) > _MOST:
        raise ValueError(f"The {what} “{text[:40]}” is not a number such as 4 or -2.5.")
    return number


def capped(choice: WindowChoice) -> Window:
    """Return the last local days of a window, as many as are replayed."""
    # By local days: seven times 24 hours would begin within a day where clocks change.
    first = day_start(choice.last - (LONGEST - 1) * DAY, choice.zone)
    return Window(max(choice.window.start, first), choice.window.end)


# ---------------------------------------------------------------- before and after

_JAIN = COLUMNS["jain_index"]


def _both(
    name: str, measure: str, label: str, kind: Format, unit: str = "", *, at: str = "before"
) -> tuple[Column, Column]:
    """Return the columns of an amount before and after the change."""
    return (
        Column(f"{name}_{measure}", label, kind, unit, at),
        Column(f"{name}_after_{measure}", "after", kind, unit),
    )


def _gpu_hours(name: str, label: str) -> tuple[Column, Column]:
    return _both(name, "gpu_hours", label, Format.GPU_HOURS, "GPU-h")


_SUMS = (
    Column("tier", "Tier"),
    *_gpu_hours("capacity", "Capacity"),
    *_gpu_hours("allocated", "Allocated"),
    *_gpu_hours("denied", "Unmet fair share"),
    _JAIN,
    replace(_JAIN, key="jain_after_index", label="after"),
)
_TEAMS = (
    Column("tier", "Tier"),
    Column("team", "Team"),
    *_gpu_hours("entitlement", "Entitlement"),
    *_gpu_hours("fair_share", "Fair share"),
    *_gpu_hours("allocated", "Allocated"),
    *_gpu_hours("denied", "Unmet fair share"),
    *_both("wait_p50", "seconds", "p50 queue time", Format.SECONDS),
    *_both("wait_p95", "seconds", "p95 queue time", Format.SECONDS),
    *_both("waiting", "now", "Pending at end", Format.COUNT, at="before, at the end of the window"),
)
_TEAM_AMOUNTS = ("entitlement", "fair_share", "allocated", "denied")


_SUM_EXPLAINS = {
    "capacity_{}gpu_hours": "what_if_capacity",
    "allocated_{}gpu_hours": "what_if_allocated",
    "denied_{}gpu_hours": "what_if_unmet",
    "jain_{}index": "what_if_jain_index",
}
_TEAM_EXPLAINS = {
    "entitlement_{}gpu_hours": "what_if_entitled",
    "fair_share_{}gpu_hours": "what_if_fair_share",
    "allocated_{}gpu_hours": "what_if_allocated",
    "denied_{}gpu_hours": "what_if_unmet",
    "wait_p50_{}seconds": "what_if_queue_time_p50",
    "wait_p95_{}seconds": "what_if_queue_time_p95",
}


def _explains(figures: Mapping[str, str], query: Query, **names: str) -> dict[str, str]:
    found = {}
    for mark, after in (("", "no"), ("after_", "yes")):
        columns = {column.format(mark): figure for column, figure in figures.items()}
        found.update(figure_hrefs(columns, query, after=after, **names))
    return found


def tables_of(
    found: WhatIfReport, wish: WhatIfInput, name: str, reading: QuerySession
) -> list[Table]:
    """Return the tiers that a change concerns, and their teams, before and after.

    `name` is the tier of the form.
    """
    own = ((key, text) for key, text in wish.fields.items() if text)
    query = [*reading.query, ("simulated", name), *own]
    pairs = list(zip(found.before, found.after, strict=True))
    zone = reading.choice.zone
    empty = "No pod of the window asked for any of this."
    teams = [_team(*pair, query) for before, after in pairs for pair in _teams_of(before, after)]
    return [
        Table(
            "sums", "Tiers, before and after", _SUMS, [_sum(*p, query) for p in pairs], zone, empty
        ),
        Table("teams", "Teams, before and after", _TEAMS, teams, zone, empty),
    ]


def _teams_of(
    before: TierOutcomeRow, after: TierOutcomeRow
) -> list[tuple[OutcomeRow | None, OutcomeRow | None]]:
    first = {row.team: row for row in before.teams}
    second = {row.team: row for row in after.teams}
    # A change may bring work to a tier that a team did not use, or take all of it away.
    return [(first.get(name), second.get(name)) for name in sorted({*first, *second})]


def _sum(before: TierOutcomeRow, after: TierOutcomeRow, query: Query) -> TableRow:
    values: dict[str, Value] = {
        "tier": before.tier,
        "jain_index": before.jain_index,
        "jain_after_index": after.jain_index,
    }
    for key in ("capacity", "allocated", "denied"):
        values[f"{key}_gpu_hours"] = nano(getattr(before, f"{key}_gpu_hours"))
        values[f"{key}_after_gpu_hours"] = nano(getattr(after, f"{key}_gpu_hours"))
    return TableRow(values, explains=_explains(_SUM_EXPLAINS, query, tier=before.tier))


def _team(before: OutcomeRow | None, after: OutcomeRow | None, query: Query) -> TableRow:
    known = before or after
    values: dict[str, Value] = {}
    if known is not None:
        values = {"tier": known.tier, "team": known.team}
    for row, mark in ((before, ""), (after, "after_")):
        if row is None:
            continue
        for key in _TEAM_AMOUNTS:
            values[f"{key}_{mark}gpu_hours"] = nano(getattr(row, f"{key}_gpu_hours"))
        values[f"wait_p50_{mark}seconds"] = row.wait_p50_seconds
        values[f"wait_p95_{mark}seconds"] = row.wait_p95_seconds
        values[f"waiting_{mark}now"] = row.waiting_now
    place = {} if known is None else {"tier": known.tier, "team": known.team}
    return TableRow(values, explains=_explains(_TEAM_EXPLAINS, query, **place))


_MOST_NAMED = 300  # names to choose from in a form; others can be written


@page
def what_if_page(request: PageRequest, name: str) -> HttpResponseBase:
    reading = query_session(request)
    names = known_tiers(name, reading)
    teams = [row.name for row in clusters.team_rows(visibility=reading.visibility)]
    wish = what_if_input(request.GET, name, teams=teams, tiers=names)
    window = capped(reading.choice)
    problems, found = list(wish.problems), None
    # A part of what was asked for would answer another question.
    if wish.changes and not problems:
        try:
            found = planning.what_if(window, wish.changes, visibility=reading.visibility)
        except ChangeImpossible as impossible:
            problems.append(f"That cannot be: {impossible}.")
        except (planning.CapacityUnknown, planning.TooMuchToReplay) as problem:
            problems.append(str(problem))
    shown = replace(reading.choice, window=window)
    return respond(
        request,
        reading,
        "what_if",
        tables=tables_of(found, wish, name, reading) if found else (),
        name=name,
        tabs=simulator_tabs(name, reading),
        tier_href=href("tier", reading.query, name=name),
        fields=wish.fields,
        problems=problems,
        found=found,
        span=shown.span_label,
        is_capped=window != reading.window,
        longest=LONGEST,
        teams=teams[:_MOST_NAMED],
        others=[other for other in names if other != name],
        hidden=reading.query,
        reset_href=with_query(path_of(request), reading.query),
    )
