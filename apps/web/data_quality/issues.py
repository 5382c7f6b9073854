"""Issues of data quality in the order of what they cost: hours, then GPU-hours, then pods."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal

from msgspec import Struct

from apps.clusters.domain.resources import counted
from apps.costs.selectors import CapacityValue
from apps.operations.selectors import FindingRow
from apps.web.components import formats
from apps.web.components.page_query import Query, href
from apps.web.data_quality.cluster_health import RunLine

OPEN_ISSUES = 10
"""Issues that are listed at once; the others unfold."""
_WORKLOAD_FINDINGS = frozenset({"gangs-on-shared", "shared-units-above-one"})
_PLATFORM, _WORKLOAD = "Platform admin", "Workload owner"
_SEVERITIES = ("error", "warning", "note")
_EFFECTS = {
    ("data", "error"): "Figures are missing or wrong until this is fixed.",
    ("data", "warning"): "Some figures are incomplete.",
    ("practice", "warning"): "GPUs or limits are lost; the figures are correct.",
}
_EFFECTS_OF = {
    "beat-stopped": "Nothing is collected, checked or sent. What was found stays as it was then.",
    "tasks-overdue": "Hours, checks and alerts may stay as they were then.",
}
"""Of issues that keep others from being found."""
_CORRECT = "None: the figures are correct."
_HOUR_SEVERITY = {"failed": "error", "missing": "error", "partial": "warning"}
Values = Mapping[tuple[str, str], CapacityValue]
"""The value of capacity by cluster and tier: what the GPU-hours of an issue are worth."""
_NEVER_TRIED = "These hours were never collected."


class QualityIssue(Struct, frozen=True):
    """An issue with its cause, effect, action and owner; `cost` is empty where none is known.

    `commands` are what to type or to write; `href` leads to what it is about.
    `places` name where it is, `since` and `seen_at` are None of hours.
    """

    severity: str
    title: str
    place: str
    cost: str
    cause: str
    effect: str
    action: str
    owner: str
    code: str
    commands: str = ""
    href: str = ""
    href_label: str = ""
    places: Sequence[str] = ()
    since: datetime | None = None
    seen_at: datetime | None = None
    order: tuple[float, ...] = ()


def quality_issues(
    lines: Iterable[RunLine], findings: Iterable[FindingRow], values: Values, query: Query
) -> list[QualityIssue]:
    """Return incomplete hours and findings of the doctor, the dearest first.

    Errors without a known cost stand before what costs GPU-hours: they hide what is lost. Money is
    about what the GPU-hours cost, at the mean price of their tier or cluster in the last days.
    """
    stray = href("gpus", (*query, ("tab", "table"), ("state", "unattributed"))) or ""
    issues = [
        *(_of_hours(line, values.get((line.cluster, ""))) for line in lines),
        *(_of_finding(row, values, stray) for row in findings),
    ]
    return sorted(issues, key=lambda issue: (issue.order, issue.place, issue.code))


def _worth(gpu_hours: float, value: CapacityValue | None) -> str:
    """Return about what GPU-hours cost; empty without a price."""
    if value is None or not gpu_hours:
        return ""
    cost = Decimal(repr(gpu_hours)) * value.per_gpu_hour
    return f"about {formats.money(cost, value.currency)}"


def _of_hours(line: RunLine, value: CapacityValue | None) -> QualityIssue:
    hours = counted(line.hours, "hour")
    partial = line.state == "partial"
    return QualityIssue(
        severity=_HOUR_SEVERITY.get(line.state, "warning"),
        title=f"{hours} {line.words}",
        place=f"{line.cluster} · {line.span}",
        cost=_joined(f"{line.hours:,} h", _capacity(line, value)),
        cause=line.remarks or _NEVER_TRIED,
        effect=(
            f"Pods or metrics of {hours} are missing." if partial else f"Totals exclude {hours}."
        ),
        action="The portal retries by itself. To collect them now:",
        owner=_PLATFORM,
        code=f"hours-{line.state}",
        commands=f"manage.py backfill --cluster {line.cluster} --days DAYS",
        href=line.href,
        href_label="Hourly log",
        # Hours come before what was found in them: without hours nothing is found.
        order=(0, float(partial), -line.hours),
    )


def _capacity(line: RunLine, value: CapacityValue | None) -> str:
    """Return about how much capacity no total has; empty of partial hours, which are in totals."""
    if value is None or line.state == "partial":
        return ""
    gpu_hours = line.hours * value.gpus
    return _joined(f"about {gpu_hours:,.0f} GPU-h", _worth(gpu_hours, value))


def _joined(*parts: str) -> str:
    return " · ".join(part for part in parts if part)


def _of_finding(row: FindingRow, values: Values, stray: str) -> QualityIssue:
    subject = "GPU model unknown" if row.subject == "unknown" else row.subject
    # The subject is a tier, a team and a tier, or something else on the cluster.
    tier = row.subject.rpartition(" ")[2]
    # Without a price of the tier that of the cluster is the nearest.
    value = values.get((row.cluster, tier), values.get((row.cluster, "")))
    return QualityIssue(
        severity=row.severity,
        title=row.title,
        place=_joined(row.cluster, subject),
        cost=_joined(
            f"{row.gpu_hours:,.1f} GPU-h" if row.gpu_hours else "",
            _worth(row.gpu_hours or 0.0, value),
            counted(row.pods, "pod") if row.pods else "",
        ),
        cause=row.what,
        effect=_EFFECTS_OF.get(row.code) or _EFFECTS.get((row.group, row.severity), _CORRECT),
        action="",
        owner=_WORKLOAD if row.code in _WORKLOAD_FINDINGS else _PLATFORM,
        code=row.code,
        commands=row.fix,
        href=stray if row.code == "activity-unattributed" else "",
        href_label="Unattributed GPUs",
        places=row.places,
        since=row.since,
        seen_at=row.seen_at,
        order=(
            -1 if row.code in _EFFECTS_OF else 1 if row.severity == "error" else 2,
            -(row.gpu_hours or 0.0),
            -float(row.pods or 0),
            _SEVERITIES.index(row.severity),
        ),
    )
