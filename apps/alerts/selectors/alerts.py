"""What was said, and what people answered."""

from collections.abc import Collection, Iterable

from django.db.models import Q

from apps.accounts.permissions import Visibility
from apps.alerts.domain.idle import IdleChoice, IdleDecision
from apps.alerts.domain.thresholds import AlertKind
from apps.alerts.models import Alert, IdleAnswer
from apps.alerts.permissions import seen_alerts
from apps.alerts.selectors.rows import AlertRow, AnswerRow


def alert_page(
    *,
    visibility: Visibility,
    kinds: Collection[AlertKind] = (),
    team: str = "",
    before: int | None = None,
    page_size: int = 50,
) -> tuple[list[AlertRow], int | None]:
    """Return what was said, the latest first, and the id to go on `before` (None: no more).

    Only of teams that the reader sees; what is about the platform is for who runs it. Two queries.
    """
    asked = Q(kind__in=[kind.value for kind in kinds]) if kinds else Q()
    if team:
        asked &= Q(team__name=team)
    if before is not None:
        asked &= Q(pk__lt=before)
    rows = Alert.objects.filter(seen_alerts(visibility), asked).select_related("team")
    found = list(rows.order_by("-pk")[: page_size + 1])
    more = found[page_size - 1].pk if len(found) > page_size else None
    return _rows(found[:page_size]), more


def alert_of(pk: int, *, visibility: Visibility) -> Alert | None:
    """Return an alert that the reader sees. One query."""
    return Alert.objects.filter(seen_alerts(visibility), pk=pk).first()


def answers_to(subjects: Collection[str]) -> dict[str, IdleDecision]:
    """Return the last answer to each subject that has one. One query."""
    return {
        row.subject: IdleDecision(IdleChoice(row.choice), row.person, row.at, row.reason, row.until)
        for row in _last_answers(subjects)
    }


def _last_answers(subjects: Collection[str]) -> Iterable[IdleAnswer]:
    rows = IdleAnswer.objects.filter(subject__in=subjects).order_by("at", "pk")
    return {row.subject: row for row in rows}.values()


def _rows(alerts: list[Alert]) -> list[AlertRow]:
    idle = {alert.subject for alert in alerts if alert.kind == AlertKind.IDLE.value}
    answers = {row.subject: row for row in _last_answers(idle)}
    return [_row(alert, answers.get(alert.subject)) for alert in alerts]


def _row(alert: Alert, answer: IdleAnswer | None) -> AlertRow:
    told = None
    if answer is not None and alert.kind == AlertKind.IDLE.value:
        told = AnswerRow(answer.person, answer.at, answer.reason, answer.until)
    return AlertRow(
        id=alert.pk,
        kind=alert.kind,
        subject=alert.subject,
        team_id=alert.team_id,
        team=alert.team.name if alert.team else None,
        title=alert.title,
        text=alert.text,
        path=alert.path,
        at=alert.at,
        urgent=alert.urgent,
        answer=told,
    )
