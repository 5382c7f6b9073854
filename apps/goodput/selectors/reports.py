"""Reports of reliability by cluster, and whether they rest on the days that are known by now."""

from collections.abc import Sequence
from datetime import datetime

from django.db.models import Count, Q
from msgspec import Struct

from apps.accounts.permissions import Visibility
from apps.clusters.models import Cluster
from apps.goodput.models import ReliabilityReport
from apps.usage.models import CollectionWindow

# With half as many hours again, nodes may be judged otherwise.
_CLEARLY_MORE = 1.5


class ClusterReport(Struct, frozen=True):
    """The report of a cluster that pages may show, and how many hours it rests on.

    Where it is not computed yet, or most of its days were collected later, `row` is an empty one.
    `known_hours` of its days are collected by now.
    """

    row: ReliabilityReport
    known_hours: int

    @property
    def cluster(self) -> str:
        """Its cluster's name."""
        return self.row.cluster.name

    @property
    def start(self) -> datetime | None:
        """The first day that it speaks of; None: not checked yet."""
        return self.row.start

    @property
    def end(self) -> datetime | None:
        """The end of its last day; None: not checked yet."""
        return self.row.end

    @property
    def missing_hours(self) -> int:
        """How many hours of its days were collected after it was computed."""
        return max(0, self.known_hours - (self.row.hours or 0)) if self.end else 0


def reliability_reports(
    *, visibility: Visibility, clusters: Sequence[str] = ()
) -> list[ClusterReport]:
    """Return the report of each active cluster, or of those named, by name.

    Two queries, one where none was computed. Empty for who sees some teams only: what fails on a
    node belongs to all teams.
    """
    if not visibility.everything:
        return []
    rows = Cluster.objects.filter(active=True).select_related("reliabilityreport")
    if clusters:
        rows = rows.filter(name__in=clusters)
    found = [_report_of(cluster) for cluster in rows.order_by("name")]
    known = _hours_known([report for report in found if report.end])
    return [_current(report, known.get(report.cluster_id, 0)) for report in found]


def _report_of(cluster: Cluster) -> ReliabilityReport:
    report: ReliabilityReport | None = getattr(cluster, "reliabilityreport", None)
    return ReliabilityReport(cluster=cluster) if report is None else report


def _current(report: ReliabilityReport, known: int) -> ClusterReport:
    # During a backfill the first report rests on a day or two, and says that all is well.
    if report.end and known >= _CLEARLY_MORE * max(1, report.hours or 0):
        return ClusterReport(ReliabilityReport(cluster=report.cluster), known)
    return ClusterReport(report, known)


def _hours_known(reports: Sequence[ReliabilityReport]) -> dict[int, int]:
    """Return by cluster how many hours of its report's days are collected."""
    if not reports:
        return {}
    windows = Q()
    for report in reports:
        windows |= Q(cluster_id=report.cluster_id, hour__gte=report.days_from, hour__lt=report.end)
    hours = CollectionWindow.objects.filter(windows, collected_at__isnull=False)
    counted = hours.order_by().values("cluster_id").annotate(hours=Count("pk"))
    return dict(counted.values_list("cluster_id", "hours"))
