"""Reads of what exists: clusters, tiers, teams, nodes and the report's settings."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db.models import Count, Max, Q, QuerySet, Subquery
from django.db.models.functions import Lower
from msgspec import Struct, field

from apps.accounts.domain.identity import AccountNames, account_of
from apps.accounts.domain.structs import replace
from apps.accounts.models import Team, User
from apps.accounts.permissions import Visibility
from apps.accounts.selectors import all_teams, leads_by_team, team_names
from apps.clusters.domain.columns import Column, for_reader
from apps.clusters.domain.names import NamespacePattern, namespace_team
from apps.clusters.domain.tiers import NO_TEAM, UNASSIGNED, GpuSharing
from apps.clusters.domain.window import Window
from apps.clusters.models import (
    Cluster,
    NamespaceTeam,
    ObservedPerson,
    PodPerson,
    ReportSettings,
    Tier,
    TierRule,
    WatchIssue,
)
from gpuportal.queries import BatchQuery, read_once

DEFAULT_SCRAPE_INTERVAL_SECONDS = 30.0

_NOBODY = 0
"""No id of a team."""
_TIER_COLUMNS = ("pk", "name", "position", "promise", "active", "builtin")
_RULE_COLUMNS = (
    *("pk", "valid_from", "valid_to", "position", "sharing"),
    *("resources", "device_classes", "node_selector", "allowed_teams"),
)


class ClusterRow(Struct, frozen=True):
    """A cluster as the catalog has it."""

    name: Annotated[str, Column()]
    prometheus_url: Annotated[
        str | None,
        Column("Prometheus", api_note="Null unless you administer the portal.", admin=True),
    ]
    scrape_interval_seconds: Annotated[float, Column("Scrape interval", "s")]
    has_kubernetes_api: Annotated[bool, Column(help="False: its pod ledger comes from metrics.")]
    watched_until: Annotated[
        datetime | None, Column("Watched until", help="Up to when every change is known.")
    ]

    @property
    def ledger_source(self) -> Annotated[str, Column("Pods known from", api=False, after="name")]:
        """Where its pods are known from."""
        return "Kubernetes API" if self.has_kubernetes_api else "metrics"


class TierRow(Struct, frozen=True):
    """A service tier as the catalog has it; what `sharing` and below say is its newest rule."""

    name: Annotated[str, Column("Tier")]
    sharing: Annotated[
        str | None, Column("Sharing", api_note="Null for built-in tiers.", values=GpuSharing)
    ]
    resources: Annotated[tuple[str, ...], Column("Resources")]
    device_classes: Annotated[tuple[str, ...], Column("Device classes")]
    node_selector: Annotated[Mapping[str, str], Column()]
    promise: Annotated[str, Column("Promise")]
    allowed_teams: Annotated[tuple[str, ...], Column("Allowed teams", help="Empty: every team.")]
    builtin: Annotated[bool, Column("Built in", help="Always there: unmatched, undetermined.")]
    active: bool = True


class TeamRow(Struct, frozen=True):
    """A team as the catalog has it."""

    name: Annotated[str, Column("Team")]
    cost_center: Annotated[
        str | None, Column("Cost center", api_note="Null where you do not see the team.")
    ]
    leads: Annotated[
        tuple[str, ...] | None, Column("Leads", api_note="Null where you do not see the team.")
    ]
    namespaces: Annotated[
        tuple[str, ...] | None,
        Column(
            "Namespaces",
            help="Patterns of the names of its namespaces.",
            api_note="Null where you may not see them.",
        ),
    ]
    builtin: Annotated[bool, Column("Built in", help="Always there: unassigned.")]
    active: bool = True


class Report(Struct, frozen=True):
    """The report's time zone and currency.

    `exchange_rates` are those of the catalog now: month (`2026-10`) → currency → rate and source.
    """

    zone: ZoneInfo
    currency: str
    exchange_rates: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)


@read_once
def report() -> Report:
    """Return the report settings; UTC and USD before a catalog was loaded. One query."""
    time_zone, currency, rates = next(iter(REPORT_SETTINGS.rows()), ("UTC", "USD", None))
    return Report(zone=ZoneInfo(time_zone), currency=currency, exchange_rates=rates or {})


@cache
def _report_settings() -> QuerySet[ReportSettings, tuple[str, str, Any]]:
    """Return the query of the settings, kept: nearly every answer begins with it."""
    columns = ("time_zone", "currency", "exchange_rates")
    return ReportSettings.objects.order_by("-pk").values_list(*columns)[:1]


REPORT_SETTINGS = BatchQuery(lambda: _report_settings().all())


class ActiveCluster(NamedTuple):
    """An active cluster: how it is read, since when, and until when it was watched."""

    pk: int
    name: str
    prometheus: Mapping[str, Any]
    kubernetes: Mapping[str, Any] | None
    collect_from: datetime | None
    watched_until: datetime | None


@read_once
def active_clusters() -> Sequence[ActiveCluster]:
    """Return active clusters by name. One query."""
    return [ActiveCluster(*row) for row in ACTIVE_CLUSTERS.rows()]


def _active_clusters() -> QuerySet[Cluster, Any]:
    rows = Cluster.objects.filter(active=True).annotate(watched_until=Max("watchcoverage__end"))
    return rows.order_by("name").values_list(*ActiveCluster._fields)


ACTIVE_CLUSTERS = BatchQuery(_active_clusters)


def cluster_rows(*, visibility: Visibility) -> list[ClusterRow]:
    """Return active clusters by name. One query.

    `prometheus_url` is None for those who may not see how the portal runs.
    """
    rows = (
        ClusterRow(
            name=row.name,
            prometheus_url=str(row.prometheus.get("url") or "") or None,
            scrape_interval_seconds=float(
                row.prometheus.get("scrape_interval_seconds") or DEFAULT_SCRAPE_INTERVAL_SECONDS
            ),
            has_kubernetes_api=row.kubernetes is not None,
            watched_until=row.watched_until,
        )
        for row in active_clusters()
    )
    return [for_reader(row, admin=visibility.operations) for row in rows]


def node_dashboard(cluster: str, node: str) -> str | None:
    """Return the address of a node's own dashboard, by the catalog's template. One query.

    None where the catalog has no template for the cluster. It is for everybody who sees the node.
    """
    if not node:
        return None
    kept = Cluster.objects.filter(name=cluster).values_list("prometheus", flat=True).first()
    template = str((kept or {}).get("node_dashboard") or "")
    names = {"{node}": node, "{cluster}": cluster}
    for name, value in names.items():
        # Quoted whole: a name cannot add a query or leave the path.
        template = template.replace(name, quote(value, safe=""))
    return template or None


class TierCatalog(NamedTuple):
    """All tiers there ever were, in the order of the catalog, and what they matched at any time.

    Rules are in the order of their tiers, those of one by their ids.
    """

    tiers: Sequence[Tier]
    rules: Sequence[TierRule]


@read_once
def tier_catalog() -> TierCatalog:
    """Return the tiers and their rules, each rule with its tier. They are few. One query."""
    tiers: dict[int, Tier] = {}
    rules: list[TierRule] = []
    for row in TIERS.rows():
        own, of_rule = row[: len(_TIER_COLUMNS)], row[len(_TIER_COLUMNS) :]
        tier = tiers.setdefault(row[0], Tier(**dict(zip(_TIER_COLUMNS, own, strict=True))))
        # A tier without any rule has one row, without one.
        if of_rule[0] is not None:
            rules.append(TierRule(tier=tier, **dict(zip(_RULE_COLUMNS, of_rule, strict=True))))
    return TierCatalog(list(tiers.values()), rules)


def _tiers() -> QuerySet[Tier, Any]:
    columns = (*_TIER_COLUMNS, *(f"rules__{name}" for name in _RULE_COLUMNS))
    return Tier.objects.order_by("position", "name", "pk", "rules__pk").values_list(*columns)


TIERS = BatchQuery(_tiers)


def tier_rows(*, visibility: Visibility, former: bool = False) -> list[TierRow]:
    """Return active tiers in catalog order, built-in ones last. One query.

    With `former` also those that left the catalog: their hours stay. Everybody may see them:
    `visibility` narrows nothing.
    """
    tiers, rules = tier_catalog()
    newest = {one.tier_id: one for one in sorted(rules, key=lambda one: (one.valid_from, one.pk))}
    listed = (tier for tier in tiers if former or tier.active)
    # The sort keeps the order of the catalog.
    return [_tier_row(one, newest.get(one.pk)) for one in sorted(listed, key=_is_builtin)]


def _is_builtin(tier: Tier) -> bool:
    return tier.builtin


def _tier_row(tier: Tier, rule: TierRule | None) -> TierRow:
    given: dict[str, Any] = {} if rule is None else vars(rule)
    return TierRow(
        name=tier.name,
        sharing=given.get("sharing"),
        resources=tuple(given.get("resources", ())),
        device_classes=tuple(given.get("device_classes", ())),
        node_selector=dict(given.get("node_selector", {})),
        promise=tier.promise,
        allowed_teams=tuple(given.get("allowed_teams", ())),
        builtin=tier.builtin,
        active=tier.active,
    )


def team_rows(*, visibility: Visibility, former: bool = False) -> list[TeamRow]:
    """Return active teams by name, with their namespace patterns. Three queries.

    With `former` also those that left the catalog. Of a team that the reader does not see in
    detail only the name is shown.
    """
    leads = leads_by_team()
    patterns: dict[int, list[str]] = defaultdict(list)
    for row in _namespace_teams():
        if row.valid_to is None:
            patterns[row.team_id].append(row.pattern)
    return [
        TeamRow(
            name=team.name,
            cost_center=team.cost_center if visibility.sees(team.pk) else None,
            leads=leads.get(team.pk, ()) if visibility.sees(team.pk) else None,
            namespaces=tuple(patterns[team.pk]) if visibility.sees(team.pk) else None,
            builtin=team.builtin,
            active=team.active,
        )
        for team in all_teams()
        if former or team.active
    ]


class TeamSpan(Struct, frozen=True):
    """The time in which a namespace belonged to a team, cut to a window."""

    team_id: int
    team: str
    start: datetime
    end: datetime


def team_spans(window: Window, namespaces: Iterable[str]) -> dict[str, tuple[TeamSpan, ...]]:
    """Return for each name of a namespace whose it was through the window, oldest first.

    The spans of a name cover the window without a gap; neighbours differ in their team. A namespace
    that no pattern names belongs to `unassigned`. An object without a namespace (its name is empty)
    belongs to no team: its id is 0. One query, two where no pattern names one.
    """
    rows = [
        one
        for one in _namespace_teams()
        if one.valid_from < window.end and (one.valid_to is None or one.valid_to > window.start)
    ]
    names = {row.team_id: row.team for row in rows}
    times = {t for row in rows for t in (row.valid_from, row.valid_to) if t is not None}
    # Teams change at few instants: between two of them a name has one team.
    edges = [window.start, *sorted(t for t in times if window.start < t < window.end), window.end]
    finders = [
        namespace_team(
            [NamespacePattern(c.team_id, c.pattern) for c in rows if _holds(c, at)],
            otherwise=_NOBODY,
        )
        for at in edges[:-1]
    ]
    spans: dict[str, list[TeamSpan]] = {}
    names_asked = set(namespaces)
    for namespace in names_asked - {""}:
        found = spans[namespace] = []
        for start, end, team_of in zip(edges, edges[1:], finders, strict=False):
            team = team_of(namespace)
            # An edge may be of another name: neighbours of one team are one span.
            if found and found[-1].team_id == team:
                start = found.pop().start
            found.append(TeamSpan(team, names.get(team, UNASSIGNED), start, end))
    named = _with_unassigned(spans)
    if "" in names_asked:
        named[""] = (TeamSpan(_NOBODY, NO_TEAM, window.start, window.end),)
    return named


class _NamespaceTeamRow(NamedTuple):
    """A pattern of a team's namespaces; `nobody` is the id of the team `unassigned`."""

    team_id: int
    team: str
    pattern: str
    valid_from: datetime
    valid_to: datetime | None
    nobody: int | None


@read_once
def _namespace_teams() -> Sequence[_NamespaceTeamRow]:
    """Return every pattern there ever was, the first to count first. They are few. One query."""
    return [_NamespaceTeamRow(*row) for row in NAMESPACE_TEAMS.rows()]


def _every_namespace_team() -> QuerySet[NamespaceTeam, Any]:
    nobody = Team.objects.filter(name=UNASSIGNED).values("pk")[:1]
    rows = NamespaceTeam.objects.annotate(nobody=Subquery(nobody)).order_by("position", "pk")
    columns = ("team_id", "team__name", "pattern", "valid_from", "valid_to", "nobody")
    return rows.values_list(*columns)


NAMESPACE_TEAMS = BatchQuery(_every_namespace_team)


def _with_unassigned(spans: Mapping[str, Sequence[TeamSpan]]) -> dict[str, tuple[TeamSpan, ...]]:
    """Return the spans, those of no team given to the team `unassigned`."""
    if not any(span.team_id == _NOBODY for found in spans.values() for span in found):
        return {namespace: tuple(found) for namespace, found in spans.items()}
    rows = _namespace_teams()
    if rows:
        nobody = rows[0].nobody or _NOBODY
    else:
        known = {name: pk for pk, name in team_names().items()}
        nobody = known.get(UNASSIGNED, _NOBODY)
    return {
        namespace: tuple(
            span if span.team_id != _NOBODY else replace(span, team_id=nobody) for span in found
        )
        for namespace, found in spans.items()
    }


def _holds(row: _NamespaceTeamRow, at: datetime) -> bool:
    return row.valid_from <= at and (row.valid_to is None or at < row.valid_to)


def people_of(user: User) -> frozenset[str]:
    """Return the names by which pods know the person of an account, see `account_of`.

    Four queries; none, and no name, where the portal does not keep who is behind pods.
    """
    if settings.PEOPLE is None or not user.is_active:
        return frozenset()
    name, mail = user.username.lower(), user.email.lower()
    local = mail.partition("@")[0]
    subjects = User.objects.filter(pk=user.pk).values_list("socialaccount__uid", flat=True)
    # Pods made by tools that know the token alone may carry its subject.
    of_provider = {subject.lower() for subject in subjects if subject}
    asked = Q(person__in={name, mail, local, *of_provider} - {""})
    if not mail:
        asked |= Q(person__startswith=f"{name}@")
    found: set[str] = set()
    for table in (PodPerson, ObservedPerson):
        rows = table._default_manager.filter(asked).order_by("person")
        found.update(rows.values_list("person", flat=True).distinct())
    accounts = _accounts_like(found) if found else []
    return frozenset(one for one in found if account_of(one, accounts) == user.username)


def names_of(person: str) -> frozenset[str]:
    """Return all names by which pods know whom they know by this one: itself without an account.

    Three queries and those of `people_of`.
    """
    account = accounts_of([person]).get(person)
    user = None if account is None else User.objects.filter(username=account).first()
    return frozenset({person}) | (frozenset() if user is None else people_of(user))


def _accounts_like(people: Iterable[str]) -> list[AccountNames]:
    """Return the accounts that may be one of these persons: two are none."""
    names = {part for person in people for part in (person, person.partition("@")[0])}
    alike = Q(name__in=names) | Q(mail__in=names) | Q(subject__in=names)
    for name in sorted(names):
        alike |= Q(mail__startswith=f"{name}@")
    # Disabled accounts count too: their person must not become that of another account.
    rows = User.objects.annotate(
        name=Lower("username"), mail=Lower("email"), subject=Lower("socialaccount__uid")
    ).filter(alike)
    return _names_of(rows)


def _names_of(rows: QuerySet[User, User]) -> list[AccountNames]:
    found = rows.order_by("pk").values_list("username", "email", "socialaccount__uid")
    return [AccountNames(name, mail, subject or "") for name, mail, subject in found]


def accounts_of(people: Iterable[str]) -> dict[str, str]:
    """Return person → user name of those that have an account. One query."""
    accounts = _names_of(User.objects.all())
    found = {person: account_of(person, accounts) for person in people}
    return {person: username for person, username in found.items() if username is not None}


def accounts_behind(
    workloads: Mapping[tuple[str, str, str], datetime],
) -> dict[tuple[str, str, str], frozenset[str]]:
    """Return the accounts of whom pods of workloads (cluster, namespace, `Kind/name`) name.

    Of pods that were there at or after a time of each. A workload whose pods name no person is left
    out; one that names persons without an account has none. Two queries; none where the portal
    does not keep who is behind pods.
    """
    if settings.PEOPLE is None or not workloads:
        return {}
    places = list(workloads)
    rows = PodPerson.objects.filter(
        Q(pod__ended_at__isnull=True) | Q(pod__ended_at__gte=min(workloads.values())),
        pod__cluster__name__in={place[0] for place in places},
        pod__workload__namespace__name__in={place[1] for place in places},
        pod__workload__name__in={place[2].partition("/")[2] for place in places},
    )
    named: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    columns = (
        *("pod__cluster__name", "pod__workload__namespace__name"),
        *("pod__workload__kind", "pod__workload__name", "person"),
    )
    # A Job has thousands of pods of one person: those that last are counted, of others the last.
    present = Count("pk", filter=Q(pod__ended_at__isnull=True))
    last = Max("pod__ended_at")
    grouped = rows.order_by().values(*columns).annotate(present=present, last=last)
    for cluster, namespace, kind, name, person, there, ended in grouped.values_list(
        *columns, "present", "last"
    ):
        place = (cluster, namespace, f"{kind}/{name}")
        if place in workloads and (there or ended >= workloads[place]):
            named[place].add(person)
    accounts = accounts_of({one for people in named.values() for one in people}) if named else {}
    return {
        place: frozenset(accounts[one] for one in people if one in accounts)
        for place, people in named.items()
    }


class WatchIssueRow(Struct, frozen=True):
    """What keeps `watch` from seeing all of a cluster; `subject` is what it is about."""

    cluster: str
    subject: str
    text: str
    since: datetime


def watch_issues(*, visibility: Visibility) -> list[WatchIssueRow]:
    """Return what `watch` cannot see of active clusters; for who sees how the portal runs.

    One query; for others none, and nothing.
    """
    if not visibility.operations:
        return []
    rows = WatchIssue.objects.filter(cluster__active=True).order_by("cluster__name", "subject")
    return [
        WatchIssueRow(*row) for row in rows.values_list("cluster__name", "subject", "text", "since")
    ]
