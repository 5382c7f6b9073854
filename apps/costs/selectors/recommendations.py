"""Recommendations, largest saving first, and the waste that they cover."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, ClassVar

from django.db.models import Count, F, Max, Min, Q, QuerySet, Sum
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.accounts.models import User
from apps.accounts.permissions import Visibility
from apps.alerts.domain.alerts import IdleChoice, workload_subject
from apps.alerts.selectors import answers_to
from apps.clusters.domain.columns import Column
from apps.clusters.domain.window import Window
from apps.clusters.selectors import report
from apps.costs.domain.costing import SCALE, SCALE_DIGITS
from apps.costs.domain.recommendations.recommendation import (
    OF_QUOTA,
    RISKS,
    Confidence,
    FollowUpOutcome,
    RecommendationKind,
    RecommendationState,
    ReplayGap,
    WasteCell,
    together,
)
from apps.costs.models import Recommendation, RecommendationRun, WasteSum
from apps.usage.domain.usage_query import (
    PlaceFilters,
    RowPage,
    decode_cursor,
    encode_cursor,
    whole_days,
)
from apps.usage.selectors import CursorRefused

Workload = tuple[str, str, str]
"""Cluster, namespace, `Kind/name`."""
_KIND = "recommendations"
_Risk = Annotated[str, Column(help="What may go wrong with the change.", after="alternative")]
_Cash = Annotated[
    bool,
    Column(
        help="Whether the saving is money; false for quota, which costs nothing by itself.",
        after="risk",
    ),
]
_RetainedUntil = Annotated[
    datetime | None,
    Column(
        help="A user keeps it although it is idle, until this instant: the end of the last day, "
        "which is the one that pages name. Null without such a decision. Until then the page does "
        "not count its saving.",
        after="verdict",
        keep_offset=True,
    ),
]
_RetainedReason = Annotated[str | None, Column(help="Why it is kept.", after="kept_until")]
_NAMED = ("cluster", "tier", "team")
DECIDED_TO_SAVE = (RecommendationState.ACCEPTED.value, RecommendationState.DONE.value)
"""The states of what was accepted: one whose whole saving came is done."""
REALIZED_VERDICTS = (FollowUpOutcome.CAME.value, FollowUpOutcome.PARTLY.value)
DECIDED = "decided"
"""The reason of waste whose recommendations are accepted or dismissed."""
_Place = tuple[int, int | None, int | None]
_Ratio = Annotated[
    float | None,
    Column(
        help="Covered ÷ waste, 0..1; null without waste.",
        key="waste_covered_ratio",
        after="covered",
    ),
]
_NotCovered = Annotated[
    Mapping[str, float], Column(help="Cost of the rest, by why nothing covers it.")
]


class RetainedWorkload(Struct, frozen=True):
    """Who keeps a workload though it is idle, before which instant, and why.

    `person` is empty where it is not for the reader: it would tell whose work it is.
    """

    until: datetime
    reason: str
    person: str


def retained_workloads(
    workloads: Iterable[Workload], *, now: datetime, reader: User | None = None
) -> dict[Workload, RetainedWorkload]:
    """Return those whose last answer keeps them at `now`. Two queries, none without workloads.

    Ask only for workloads that the reader sees: what was answered is as they are. Without a
    `reader`, the name of who keeps their own work is left out.
    """
    subjects = {workload_subject(one): one for one in workloads}
    if not subjects:
        return {}
    return {
        subjects[subject]: RetainedWorkload(answer.until, answer.reason, answer.person)
        for subject, answer in answers_to(subjects, reader=reader).items()
        # At its end it no longer counts: the workload may be asked about again.
        if answer.choice is IdleChoice.KEEP and answer.until is not None and now < answer.until
    }


class RecommendationFilters(PlaceFilters, frozen=True):
    """Narrow a reading to these names, too."""

    kind: tuple[str, ...] = ()
    state: tuple[str, ...] = (RecommendationState.OPEN.value,)
    workload: tuple[str, ...] = ()


class RecommendationRow(Struct, frozen=True):
    """One change and what it would save.

    Texts are empty where they do not apply. `team_id` None: of no team in particular. The result of
    an accepted one is None until seven days were collected since.
    """

    pk: Annotated[int, Column(key="id")]
    kind: Annotated[str, Column("Kind", values=RecommendationKind)]
    cluster: Annotated[str, Column("Cluster")]
    namespace: Annotated[str, Column("Namespace", empty_is_null=True)]
    workload: Annotated[
        str,
        Column("Workload", help="Kind/name; of a quota ResourceQuota/name.", empty_is_null=True),
    ]
    node: Annotated[str, Column("Node", empty_is_null=True)]
    tier: Annotated[str | None, Column("Tier")]
    team: Annotated[str | None, Column("Team")]
    team_id: int | None
    change: Annotated[str, Column("Change", help="What to do, in words.")]
    patch: Annotated[
        str,
        Column(
            help="The same as a fragment of YAML or a command; null where neither.",
            empty_is_null=True,
        ),
    ]
    saving_per_month: Annotated[
        Decimal | None,
        Column(
            "Saving per month",
            help="Of 730 hours, to the cent.",
            api_note="Null where there is no price.",
        ),
    ]
    currency: Annotated[str | None, Column("Currency")]
    alternative: Annotated[
        bool,
        Column(
            help="Another one of the same subject, or of the same empty GPUs, is counted: do not "
            "add this one to it."
        ),
    ]
    confidence: Annotated[str, Column("Confidence", values=Confidence)]
    reason: Annotated[str, Column("Reason", help="Why it is as certain as that.")]
    evidence: Annotated[Mapping[str, Any], Column(help="Figures by name, with their units.")]
    replay: Annotated[
        Mapping[str, Any] | None,
        Column(
            help="Effects of the change in a replay of recorded demand: GPU-hours, seconds of "
            "queue time, and money a month.",
            api_note="Null where none was replayed.",
        ),
    ]
    replay_gap: Annotated[
        str,
        Column(
            help="Why a change of a kind that is replayed was not; null where it was, or will be.",
            values=ReplayGap,
            empty_is_null=True,
        ),
    ]
    state: Annotated[str, Column("State", values=RecommendationState)]
    first_seen: Annotated[datetime, Column("First found", keep_offset=True)]
    last_seen: Annotated[datetime, Column("Last found", keep_offset=True)]
    decided_by: str
    decided_at: datetime | None
    dismiss_reason: Annotated[str, Column(empty_is_null=True)]
    cost_before: Decimal | None
    days_before: float | None
    cost_after: Decimal | None
    days_after: float | None
    verdict: Annotated[
        str,
        Column(
            help="Of an accepted one, whether the saving came; null where that is not known.",
            values=FollowUpOutcome,
            empty_is_null=True,
        ),
    ]
    saved_per_month: Annotated[
        Decimal | None, Column(help="What it costs less a month than before it was accepted.")
    ]
    change_values: Mapping[str, Any] | None
    retained: RetainedWorkload | None = None

    @property
    def risk(self) -> _Risk:
        return RISKS[RecommendationKind(self.kind)]

    @property
    def cash(self) -> _Cash:
        return self.kind not in OF_QUOTA

    @property
    def kept_until(self) -> _RetainedUntil:
        return None if self.retained is None else self.retained.until

    @property
    def kept_reason(self) -> _RetainedReason:
        return None if self.retained is None else self.retained.reason


class RecommendationSum(Struct, frozen=True):
    """How many there are in a currency (empty: unpriced), and what they save together.

    Of one subject's alternatives one counts, in both.
    """

    currency: str
    count: int
    saving_per_month: Decimal | None


_COLUMNS = [
    f"{name}__name" if name in _NAMED else name
    for name in RecommendationRow.__struct_fields__
    if name != "retained"
]
_CURRENCY = _COLUMNS.index("currency")


def recommendation_page(
    *,
    filters: RecommendationFilters,
    visibility: Visibility,
    cursor: str | None,
    page_size: int,
) -> RowPage[RecommendationRow]:
    """Return one page, the largest saving first and unpriced ones last. One query.

    Only of teams that the reader sees; those of no team are for who sees everything. Raises
    CursorRefused.
    """
    rows = _rows(filters, visibility)
    if cursor is not None:
        rows = rows.filter(_after_cursor(cursor))
    ordered = rows.order_by(F("saving_per_month").desc(nulls_last=True), "pk")
    # One more than a page tells whether another follows, without counting them all.
    found = [_row(values) for values in ordered.values_list(*_COLUMNS)[: page_size + 1]]
    shown = tuple(found[:page_size])
    more = len(found) > page_size
    return RowPage(shown, encode_cursor(_KIND, _cursor_of(shown[-1])) if more else None)


def recommendation(pk: int, *, visibility: Visibility) -> RecommendationRow | None:
    """Return one of any state; None where it is not there or not for this reader. One query."""
    # Any state: a page must outlive the decision that its reader takes on it.
    rows = _rows(RecommendationFilters(state=()), visibility).filter(pk=pk)
    values = rows.values_list(*_COLUMNS).first()
    return None if values is None else _row(values)


def recommendation_sums(
    *,
    filters: RecommendationFilters,
    visibility: Visibility,
    now: datetime | None = None,
    of_quota: bool = False,
) -> list[RecommendationSum]:
    """Return what all rows of `recommendation_page` save together, by currency.

    Quota saves no cash: with `of_quota` its rows alone are added up, else all others. With `now`,
    without idle workloads that somebody keeps then: what is kept on purpose is not to be had. One
    query, with `now` three at most.
    """
    of = Q(kind__in=[kind.value for kind in OF_QUOTA])
    counted = _rows(filters, visibility).filter(of if of_quota else ~of, alternative=False)
    kept = _retained_among(counted, now) if now is not None else []
    rows = counted.exclude(pk__in=kept).order_by("currency")
    sums = rows.values_list("currency").annotate(count=Count("pk"), saves=Sum("saving_per_month"))
    return [RecommendationSum(*row) for row in sums]


def _retained_among(rows: QuerySet[Recommendation, Recommendation], now: datetime) -> list[int]:
    # Only idle workloads are asked about, so no other kind has answers.
    idle = rows.filter(kind=RecommendationKind.STOP_IDLE_NOTEBOOK.value).order_by("pk")
    asked = list(idle.values_list("pk", "cluster__name", "namespace", "workload"))
    kept = retained_workloads((one[1:] for one in asked), now=now)
    return [pk for pk, *workload in asked if tuple(workload) in kept]


class Savings(Struct, frozen=True):
    """Savings a month by currency: open, accepted and quota as promised, realized as it came.

    `judged` is how many accepted ones have a verdict. Of alternatives one counts.
    """

    open: Sequence[RecommendationSum]
    accepted: Sequence[RecommendationSum]
    quota: Sequence[RecommendationSum]
    realized: Sequence[RecommendationSum]
    judged: int


def savings(*, filters: RecommendationFilters, visibility: Visibility, now: datetime) -> Savings:
    """Return the savings of all states, whatever state the filters name. Three queries at most.

    What is open, accepted or done sums up as `recommendation_sums` does, with `now` for cash.
    """
    states = (RecommendationState.OPEN.value, *DECIDED_TO_SAVE)
    rows = _rows(replace(filters, state=states), visibility).filter(alternative=False)
    # What is kept is left out of sums alone: whether an earlier saving came is judged all the same.
    counted = ~Q(pk__in=_retained_among(rows, now))
    came = Q(verdict__in=REALIZED_VERDICTS)
    sums: dict[str, dict[str, RecommendationSum]] = defaultdict(dict)
    judged = 0
    groups = rows.order_by("currency", "kind", "state").values_list("kind", "state", "currency")
    for kind, state, currency, count, saves, of_judged, of_came, saved in groups.annotate(
        count=Count("pk", filter=counted),
        saves=Sum("saving_per_month", filter=counted),
        # Neither is a verdict: empty was never looked at, and the other is too early to tell.
        judged=Count("pk", filter=~Q(verdict__in=("", FollowUpOutcome.TOO_EARLY.value))),
        came=Count("pk", filter=came),
        saved=Sum("saved_per_month", filter=came),
    ):
        is_open = state == RecommendationState.OPEN
        if kind not in OF_QUOTA:
            _add(sums["open" if is_open else "accepted"], currency, count, saves)
        elif is_open:
            _add(sums["quota"], currency, count, saves)
        if not is_open:
            judged += of_judged
            _add(sums["realized"], currency, of_came, saved)
    return Savings(
        open=tuple(sums["open"].values()),
        accepted=tuple(sums["accepted"].values()),
        quota=tuple(sums["quota"].values()),
        realized=tuple(sums["realized"].values()),
        judged=judged,
    )


def _add(
    sums: dict[str, RecommendationSum], currency: str, count: int, saves: Decimal | None
) -> None:
    # A currency without a row would be a saving of nothing in it.
    if not count:
        return
    known = sums.get(currency, RecommendationSum(currency, 0, None))
    # Unpriced ones count without an amount: a sum is known as far as any of its parts is.
    whole = known.saving_per_month if saves is None else (known.saving_per_month or 0) + saves
    sums[currency] = RecommendationSum(currency, known.count + count, whole)


def retained_of(
    rows: Iterable[RecommendationRow], *, now: datetime, reader: User | None = None
) -> Mapping[int, RetainedWorkload]:
    """Return by pk the rows to stop something idle that somebody keeps. Two queries at most."""
    asked = {
        row.pk: (row.cluster, row.namespace, row.workload)
        for row in rows
        if row.kind == RecommendationKind.STOP_IDLE_NOTEBOOK
    }
    kept = retained_workloads(asked.values(), now=now, reader=reader)
    return {pk: kept[workload] for pk, workload in asked.items() if workload in kept}


def kinds_found(
    *, filters: RecommendationFilters, visibility: Visibility
) -> list[tuple[str, str, int]]:
    """Return (kind, state, how many), whatever kind and state the filters name. One query."""
    every = filters.of_kind(RecommendationFilters, state=())
    rows = _rows(every, visibility).order_by("kind", "state")
    return list(rows.values_list("kind", "state").annotate(count=Count("pk")))


def recommended_at(*, visibility: Visibility) -> datetime | None:
    """Return when evidence was last looked at; None before the first time. One query.

    It tells nothing of anybody: `visibility` narrows nothing.
    """
    newest = RecommendationRun.objects.order_by("-at").values_list("at", flat=True)
    return newest.first()


def evidence_window(cluster: str) -> Window | None:
    """Return the days of a cluster's newest evidence; None before the first. One query."""
    run = RecommendationRun.objects.filter(cluster__name=cluster, first__isnull=False).first()
    if run is None or run.first is None:
        return None
    return whole_days(run.day, (run.day - run.first).days + 1, report().zone)


def _rows(
    filters: RecommendationFilters, visibility: Visibility
) -> QuerySet[Recommendation, Recommendation]:
    rows = Recommendation.objects.all()
    if not visibility.everything:
        # What is of no team concerns the platform, and is for who sees everything.
        rows = rows.filter(team_id__in=visibility.team_ids)
    for column, names in (
        ("cluster__name", filters.cluster),
        ("tier__name", filters.tier),
        ("team__name", filters.team),
        ("namespace", filters.namespace),
        ("kind", filters.kind),
        ("state", filters.state),
        ("workload", filters.workload),
    ):
        if names:
            rows = rows.filter(**{f"{column}__in": names})
    return rows


def _row(values: tuple[Any, ...]) -> RecommendationRow:
    given = list(values)
    given[_CURRENCY] = given[_CURRENCY] or None
    return RecommendationRow(*given)


def _cursor_of(row: RecommendationRow) -> tuple[str, int]:
    # As text: a float would not find the row again to the last digit.
    return "" if row.saving_per_month is None else f"{row.saving_per_month:f}", row.pk


def _after_cursor(cursor: str) -> Q:
    saving, pk = decode_cursor(_KIND, cursor, (str, int))
    unpriced = Q(saving_per_month__isnull=True)
    if saving == "":
        return unpriced & Q(pk__gt=pk)
    try:
        known = Decimal(str(saving))
    except InvalidOperation as error:
        raise CursorRefused("this cursor does not belong to this list") from error
    # Decimals may be NaN or endless, with which no database compares.
    if not known.is_finite() or abs(known) >= Decimal(10) ** 18:
        raise CursorRefused("this cursor does not belong to this list")
    return unpriced | Q(saving_per_month__lt=known) | Q(saving_per_month=known, pk__gt=pk)


class WasteCovered(Struct, frozen=True):
    """How much of the waste the open recommendations would avoid, each GPU-hour once.

    Priced waste of the days that were looked at last, in units of 1e-8 of one currency. `rest` has
    why nothing open covers it, the most first. `by` has (waste, covered) of each team, tier and
    cause, by their names; an empty team is the platform. Days are None before the first look.
    """

    schema: ClassVar[str] = "Summary"

    waste: Annotated[
        int,
        Column(
            help="Waste of the days of the evidence, of teams you see in detail.",
            key="waste_cost",
            digits=SCALE_DIGITS,
        ),
    ]
    covered: Annotated[
        int,
        Column(
            help="What of it at least one open recommendation would avoid.",
            key="covered_cost",
            digits=SCALE_DIGITS,
        ),
    ]
    currency: Annotated[str, Column(help="The report's; waste in others is left out.")]
    first: Annotated[date | None, Column(help="First day of the evidence.", key="first_day")]
    last: Annotated[date | None, Column(help="Last day of the evidence.", key="last_day")]
    rest: Sequence[tuple[str, int]]
    by: Mapping[tuple[str, str, str], tuple[int, int]]

    @property
    def ratio(self) -> _Ratio:
        return self.covered / self.waste if self.waste else None

    @property
    def not_covered(self) -> _NotCovered:
        return {reason: cost / SCALE for reason, cost in self.rest}


def waste_covered(*, filters: RecommendationFilters, visibility: Visibility) -> WasteCovered:
    """Return how much of the waste is covered, in the report's currency.

    Of the filters cluster, tier and team count. A reader who does not see everything gets the waste
    of their teams alone. Four queries.
    """
    currency = report().currency
    names = _places_of(filters)
    sums = WasteSum.objects.filter(currency=currency, **names)
    # Those that avoid no waste, as of quota, cover nothing.
    rows = Recommendation.objects.filter(
        currency=currency, state=RecommendationState.OPEN.value, **names
    ).exclude(covers=[])
    if not visibility.everything:
        sums = sums.filter(team__in=visibility.team_ids)
        rows = rows.filter(team__in=visibility.team_ids)
    covered = _covered_units(rows.values_list("cluster_id", "tier_id", "team_id", "covers"))
    waste: dict[tuple[_Place, str], int] = defaultdict(int)
    found: dict[tuple[_Place, str], int] = defaultdict(int)
    reasons: dict[str, int] = defaultdict(int)
    named: dict[tuple[_Place, str], tuple[str, str, str]] = {}
    columns = ("cluster_id", "tier_id", "team_id", "cause", "reason", "team__name", "tier__name")
    for *place, cause, reason, team, tier, cost in (
        sums.order_by().values_list(*columns).annotate(whole=Sum("cost"))
    ):
        key = ((place[0], place[1], place[2]), cause)
        waste[key] += cost
        reasons[reason] += cost
        found[key] += cost if reason == WasteSum.COVERED else 0
        named[key] = (team or "", tier, cause)
    # One that is reopened tells what it covered when it was decided on; that may be more by now.
    counted = {key: min(covered.get(key, 0), found[key]) for key in waste}
    reasons[DECIDED] = reasons.pop(WasteSum.COVERED, 0) - sum(counted.values())
    by: dict[tuple[str, str, str], tuple[int, int]] = {}
    for key, amount in waste.items():
        known = by.get(named[key], (0, 0))
        by[named[key]] = known[0] + amount, known[1] + counted[key]
    runs = RecommendationRun.objects.all()
    if filters.cluster:
        runs = runs.filter(cluster__name__in=filters.cluster)
    days = runs.aggregate(first=Min("first"), last=Max("day"))
    return WasteCovered(
        currency=currency,
        waste=sum(waste.values()),
        covered=sum(counted.values()),
        rest=sorted(
            ((reason, cost) for reason, cost in reasons.items() if cost > 0),
            key=lambda one: (-one[1], one[0]),
        ),
        by=by,
        first=days["first"],
        last=days["last"],
    )


def _places_of(filters: RecommendationFilters) -> dict[str, Sequence[str]]:
    """Return the conditions on cluster, tier and team."""
    columns = {"cluster": filters.cluster, "tier": filters.tier, "team": filters.team}
    return {f"{column}__name__in": wanted for column, wanted in columns.items() if wanted}


def _covered_units(
    rows: Iterable[tuple[int, int | None, int | None, list[tuple[str, str, int]]]],
) -> dict[tuple[_Place, str], int]:
    """Return what is covered of each place and cause."""
    claims: dict[_Place, list[dict[WasteCell, int]]] = defaultdict(list)
    for cluster, tier, team, covers in rows:
        claim = {WasteCell(name, cause): units for name, cause, units in covers}
        claims[cluster, tier, team].append(claim)
    found: dict[tuple[_Place, str], int] = defaultdict(int)
    for place, of_place in claims.items():
        for cell, units in together(of_place).items():
            found[place, cell.cause] += units
    return found
