"""Reads of alerts: what was said, where it goes, what became of it."""

from collections.abc import Collection, Iterable
from datetime import datetime, time, timedelta

from django.db.models import Count, Exists, Max, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from msgspec import Struct

from apps.accounts.domain.rows import row_from
from apps.accounts.models import Team, User
from apps.accounts.permissions import Visibility, can_administer, teams_led_by
from apps.alerts.domain.alerts import (
    LASTING_KINDS,
    AlertKind,
    IdleChoice,
    IdleDecision,
    WorkloadPlace,
    workload_subject,
)
from apps.alerts.models import (
    Alert,
    AlertState,
    Channel,
    Delivery,
    IdleAnswer,
    Mute,
    ReadMarker,
    SourceCursor,
)
from apps.alerts.permissions import naming, seen_alerts, seen_channels
from gpuportal.queries import BatchQuery


class AnswerRow(Struct, frozen=True):
    """What was answered to an idle alert last; `until` None: it can go, or `silences`.

    `person` is empty where it is not for the reader, see `naming`. `last_moment` is the last moment
    before `until`: its day is the last one on which it is kept.
    """

    person: str
    at: datetime
    reason: str
    until: datetime | None
    last_moment: datetime | None = None
    silences: bool = False


class AlertRow(Struct, frozen=True):
    """One thing said; `team` None: about the platform. `answer` is of idle alerts alone."""

    id: int
    kind: str
    subject: str
    team_id: int | None
    team: str | None
    title: str
    text: str
    path: str
    at: datetime
    urgent: bool
    answer: AnswerRow | None = None


class ChannelRow(Struct, frozen=True):
    """Where alerts go; `address` is what of it may be read.

    `team` and `owner` None: of the platform. `last_error` is why something did not arrive, empty
    when nothing failed since something last did.
    """

    id: int
    name: str
    kind: str
    address: str
    team: str | None
    owner: str | None
    kinds: tuple[str, ...]
    cadence: str
    at: time
    weekday: int
    quiet_from: time | None
    quiet_to: time | None
    active: bool
    last_sent_at: datetime | None
    last_error: str


class DeliveryRow(Struct, frozen=True):
    """One alert on one channel; `due_at` is when it goes out, or would have."""

    id: int
    title: str
    kind: str
    subject: str
    channel: str
    channel_id: int
    state: str
    due_at: datetime
    sent_at: datetime | None
    failures: int
    error: str


class MuteRow(Struct, frozen=True):
    """A silence of a channel; `kind` and `subject` empty: any."""

    id: int
    channel: str
    channel_id: int
    kind: str
    subject: str
    start: datetime
    end: datetime
    why: str
    by: str


_SHOWN_ANSWER = timedelta(days=1)
MOST_UNREAD = 99
"""More unread subjects than this are not counted."""


class AlertGroup(Struct, frozen=True):
    """What was said of one subject in one kind: its latest alert, and how often in all."""

    row: AlertRow
    count: int
    is_unread: bool


def unread_count(user: User, *, visibility: Visibility) -> int:
    """Return of how many subjects a person has not read all; MOST_UNREAD + 1 where more.

    A subject counts once, however often it was said, and not at all if it stood before the portal
    first looked. One query.
    """
    return len(UNREAD.rows(user.pk, visibility))


def _unread_subjects(user_id: int, visibility: Visibility) -> QuerySet[Alert, tuple[str, str]]:
    own = ReadMarker.objects.filter(user_id=user_id)
    of_all = own.filter(kind="").values("up_to")[:1]
    of_subject = own.filter(
        kind=OuterRef("kind"), subject=OuterRef("subject"), up_to__gte=OuterRef("pk")
    )
    unread = Alert.objects.filter(
        seen_alerts(visibility),
        ~Exists(of_subject),
        _is_news(),
        # Without a marker the bound is NULL, and no comparison with it is true.
        pk__gt=Coalesce(Subquery(of_all), 0),
    )
    # One more than is counted, to tell that there are more.
    return unread.order_by().values_list("kind", "subject").distinct()[: MOST_UNREAD + 1]


UNREAD = BatchQuery(_unread_subjects, is_pure=True)


def _is_news() -> Q:
    """Return the condition of alerts that are news: urgent, an event, or of after the history."""
    cursor = SourceCursor.objects.filter(pk=SourceCursor.HISTORY).values("position")[:1]
    history = Coalesce(Subquery(cursor), 0)
    standing = [kind.value for kind in LASTING_KINDS]
    return Q(urgent=True) | ~Q(kind__in=standing) | Q(pk__gt=history)


class AlertFilters(Struct, frozen=True):
    """Narrow alerts to kinds, a team's name or one subject; empty means all."""

    kinds: Collection[AlertKind] = ()
    team: str = ""
    subject: str = ""

    @property
    def condition(self) -> Q:
        asked = Q(kind__in=[kind.value for kind in self.kinds]) if self.kinds else Q()
        asked &= Q(team__name=self.team) if self.team else Q()
        return asked & Q(subject=self.subject) if self.subject else asked


_ALL = AlertFilters()
_GROUPS_OF_A_PAGE = 10


def alert_groups(
    user: User,
    *,
    visibility: Visibility,
    filters: AlertFilters = _ALL,
    page: int = 1,
) -> tuple[list[AlertGroup], bool]:
    """Return a page of what was said by subject, unread first, and whether there is more.

    Only of teams that the reader sees, as `alert_page`. Four queries.
    """
    seen = Alert.objects.filter(seen_alerts(visibility), filters.condition)
    news = Max("pk", filter=_is_news(), default=0)
    by_subject = seen.order_by().values("kind", "subject")
    latest = by_subject.annotate(latest=Max("pk"), times=Count("pk"), news=news)
    read = {
        (kind, subject): up_to
        for kind, subject, up_to in ReadMarker.objects.filter(user=user).values_list(
            "kind", "subject", "up_to"
        )
    }
    of_all = read.get(("", ""), 0)
    groups = sorted(
        (
            (newest > max(of_all, read.get((kind, subject), 0)), pk, count)
            for kind, subject, pk, count, newest in latest.values_list(
                "kind", "subject", "latest", "times", "news"
            )
        ),
        reverse=True,
    )
    start = (page - 1) * _GROUPS_OF_A_PAGE
    shown = groups[start : start + _GROUPS_OF_A_PAGE]
    alerts = Alert.objects.select_related("team").in_bulk([pk for _, pk, _ in shown])
    rows = {row.id: row for row in _rows(list(alerts.values()), user)}
    found = [AlertGroup(rows[pk], count, unread) for unread, pk, count in shown if pk in rows]
    return found, len(groups) > start + _GROUPS_OF_A_PAGE


def alert_page(
    reader: User | None = None,
    *,
    visibility: Visibility,
    filters: AlertFilters = _ALL,
    before: int | None = None,
    page_size: int = 50,
) -> tuple[list[AlertRow], int | None]:
    """Return what was said, the latest first, and the id to go on `before` (None: no more).

    Only of teams that the reader sees; what is about the platform is for who runs it. Without a
    `reader`, names of who answered for their own work are left out. Three queries at most.
    """
    asked = filters.condition
    if before is not None:
        asked &= Q(pk__lt=before)
    rows = Alert.objects.filter(seen_alerts(visibility), asked).select_related("team")
    found = list(rows.order_by("-pk")[: page_size + 1])
    more = found[page_size - 1].pk if len(found) > page_size else None
    return _rows(found[:page_size], reader), more


def alert_of(pk: int, *, visibility: Visibility) -> Alert | None:
    """Return an alert that the reader sees. One query."""
    return Alert.objects.filter(seen_alerts(visibility), pk=pk).first()


def answers_to(subjects: Collection[str], *, reader: User | None = None) -> dict[str, IdleDecision]:
    """Return the last answer to each subject that has one. Two queries at most.

    Who answered for their own work is named as `naming` says: without a `reader` not at all.
    """
    name = naming(reader)
    return {
        row.subject: IdleDecision(IdleChoice(row.choice), name(row), row.at, row.reason, row.until)
        for row in _last_answers(subjects)
    }


def _last_answers(subjects: Collection[str]) -> Iterable[IdleAnswer]:
    rows = IdleAnswer.objects.filter(subject__in=subjects).order_by("at", "pk")
    return {row.subject: row for row in rows}.values()


class IdleFinding(Struct, frozen=True):
    """A workload that is idle, or was answered for, with its last alert; `answer` holds now.

    `workload` reads `Kind/name`.
    """

    alert_id: int
    cluster: str
    namespace: str
    workload: str
    team_id: int | None
    title: str
    since: datetime
    answer: IdleDecision | None

    @property
    def is_open(self) -> bool:
        """Say whether it is idle and has no answer yet."""
        return self.answer is None


def idle_findings(
    workloads: Collection[WorkloadPlace], *, reader: User, visibility: Visibility, now: datetime
) -> list[IdleFinding]:
    """Return those of these workloads (cluster, namespace, `Kind/name`) that are idle, by name.

    Of teams that the reader sees. A workload may be of several persons: who of them answered is
    named as `naming` says. Four queries at most; none without workloads.
    """
    subjects = {workload_subject(one): one for one in sorted(workloads)}
    if not subjects:
        return []
    kind = AlertKind.IDLE.value
    rows = Alert.objects.filter(seen_alerts(visibility), kind=kind, subject__in=subjects)
    latest = {row.subject: row for row in rows.order_by("pk")}
    states = AlertState.objects.filter(kind=kind, subject__in=latest, level__isnull=False)
    standing = set(states.order_by("subject").values_list("subject", flat=True))
    answers = answers_to(latest, reader=reader)
    found = []
    for subject, row in latest.items():
        answer = answers.get(subject)
        # Without a day it ends with the idle time that it is about: here it is shown for a while.
        ends = None if answer is None else answer.until or answer.at + _SHOWN_ANSWER
        holds = answer is not None and ends is not None and now < ends and answer.at >= row.at
        if subject in standing or holds:
            found.append(_idle_finding(row, subjects[subject], answer if holds else None))
    return found


def _idle_finding(row: Alert, place: WorkloadPlace, answer: IdleDecision | None) -> IdleFinding:
    return IdleFinding(row.pk, *place, row.team_id, row.title, row.at, answer)


def _rows(alerts: list[Alert], reader: User | None) -> list[AlertRow]:
    idle = {alert.subject for alert in alerts if alert.kind == AlertKind.IDLE.value}
    answers = answers_to(idle, reader=reader) if idle else {}
    return [_alert_row(alert, answers.get(alert.subject)) for alert in alerts]


def _alert_row(alert: Alert, answer: IdleDecision | None) -> AlertRow:
    told = None
    if answer is not None and alert.kind == AlertKind.IDLE.value:
        silences = answer.choice is IdleChoice.SILENCE
        told = AnswerRow(
            *(answer.person, answer.at, answer.reason, answer.until, answer.last_moment, silences)
        )
    return row_from(
        AlertRow,
        alert,
        id=alert.pk,
        team=alert.team.name if alert.team else None,
        answer=told,
    )


def readers_of(kind: AlertKind) -> list[User]:
    """Return the active users with an active channel of their own that takes a kind. One query."""
    rows = Channel.objects.filter(active=True, owner__isnull=False, owner__is_active=True)
    # Not every database can ask whether a list in JSON holds something.
    owners = {
        row.owner_id: row.owner
        for row in rows.select_related("owner").order_by("owner__username", "pk")
        if kind.value in row.kinds
    }
    return [owner for owner in owners.values() if owner is not None]


def channel_rows(user: User, *, only: int | None = None) -> list[ChannelRow]:
    """Return the channels that a person may change, by name, or one. Two queries at most."""
    of = Delivery.objects.filter(channel=OuterRef("pk"))
    sent = of.filter(state=Delivery.State.SENT).order_by("-sent_at")
    failed = of.exclude(error="").exclude(state=Delivery.State.MUTED).order_by("-pk")
    rows = (
        Channel.objects.filter(seen_channels(user), Q() if only is None else Q(pk=only))
        .select_related("team", "owner")
        .annotate(
            last_sent=Subquery(sent.values("sent_at")[:1]),
            last_error=Subquery(failed.values("error")[:1]),
            failed_due=Subquery(failed.values("due_at")[:1]),
        )
    )
    return [
        row_from(
            ChannelRow,
            row,
            id=row.pk,
            address=row.shown,
            team=row.team.name if row.team else None,
            owner=row.owner.username if row.owner else None,
            kinds=tuple(row.kinds),
            last_sent_at=row.last_sent,
            last_error=_error(row.last_error, row.failed_due, row.last_sent),
        )
        for row in rows.order_by("name", "pk")
    ]


def _error(error: str | None, due_at: datetime | None, sent_at: datetime | None) -> str:
    """Return why something did not arrive, unless something arrived after it was last due."""
    over = due_at is not None and sent_at is not None and due_at <= sent_at
    return "" if over else error or ""


def teams_for_channels(user: User) -> dict[int, str]:
    """Return id → name of the teams that a person may make channels of. Two queries at most."""
    teams = Team.objects.filter(active=True).order_by("name")
    if not can_administer(user):
        teams = teams.filter(pk__in=teams_led_by(user))
    return dict(teams.values_list("pk", "name"))


def channel_of(user: User, pk: int) -> Channel | None:
    """Return a channel that a person may change. Two queries at most."""
    rows = Channel.objects.filter(seen_channels(user), pk=pk)
    return rows.select_related("team", "owner").first()


def delivery_page(
    user: User, *, channel: int | None = None, before: int | None = None, page_size: int = 50
) -> tuple[list[DeliveryRow], int | None]:
    """Return what became of alerts on the channels that a person may change, the latest first.

    With the id to go on `before` (None: no more). Two queries at most.
    """
    seen = Channel.objects.filter(seen_channels(user))
    rows = Delivery.objects.filter(channel__in=seen).select_related("alert", "channel")
    if channel is not None:
        rows = rows.filter(channel=channel)
    if before is not None:
        rows = rows.filter(pk__lt=before)
    found = list(rows.order_by("-pk")[: page_size + 1])
    more = found[page_size - 1].pk if len(found) > page_size else None
    return [_delivery_row(row) for row in found[:page_size]], more


def _delivery_row(row: Delivery) -> DeliveryRow:
    return row_from(
        DeliveryRow,
        row,
        id=row.pk,
        title=row.alert.title,
        kind=row.alert.kind,
        subject=row.alert.subject,
        channel=row.channel.name,
    )


def mute_of(user: User, pk: int) -> Mute | None:
    """Return a silence of a channel that a person may change. Two queries at most."""
    seen = Channel.objects.filter(seen_channels(user))
    return Mute.objects.filter(pk=pk, channel__in=seen).select_related("channel").first()


def mute_rows(user: User, at: datetime) -> list[MuteRow]:
    """Return the silences that last at `at`, of channels a person may change. Two queries."""
    seen = Channel.objects.filter(seen_channels(user))
    rows = Mute.objects.filter(channel__in=seen, end__gt=at).select_related("channel")
    return [
        row_from(
            MuteRow,
            row,
            id=row.pk,
            channel=row.channel.name,
        )
        for row in rows.order_by("end", "pk")
    ]
