"""How the exporters of a cluster showed themselves over time, and when that changed."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from apps.accounts.permissions import Visibility
from apps.clusters.domain.devices.exporter_profile import ExporterProfile, differences, remembered
from apps.usage.models import CollectionWindow, ExporterSetUp


@dataclass(frozen=True, slots=True)
class ExporterChange:
    """From the hour that begins at `hour` exporters showed themselves differently: `what`."""

    hour: datetime
    what: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExporterHistory:
    """The profile of the newest hour that showed any, and the changes up to it, newest first."""

    cluster: str
    profile: ExporterProfile
    seen: datetime
    changes: tuple[ExporterChange, ...]


def exporter_histories(*, since: datetime, visibility: Visibility) -> list[ExporterHistory]:
    """Return for each active cluster how its exporters showed themselves since a time.

    Only for who sees how the portal runs; for others it is empty. Two queries.
    """
    if not visibility.operations:
        return []
    hours = (
        CollectionWindow.objects.filter(
            cluster__active=True, hour__gte=since, exporters__isnull=False
        )
        .order_by("cluster__name", "hour")
        .values_list("cluster__name", "hour", "exporters_id")
    )
    runs = list(_runs(hours))
    profiles = {
        row.pk: ExporterProfile.from_json(row.profile)
        for row in ExporterSetUp.objects.filter(pk__in={run.set_up for run in runs}).order_by("pk")
    }
    of_cluster: dict[str, list[_Run]] = {}
    for run in runs:
        of_cluster.setdefault(run.cluster, []).append(run)
    return [_history(cluster, some, profiles) for cluster, some in of_cluster.items()]


@dataclass(slots=True)
class _Run:
    cluster: str
    first: datetime
    last: datetime
    set_up: int


def _runs(hours: Iterable[tuple[str, datetime, int]]) -> Iterator[_Run]:
    run: _Run | None = None
    for cluster, hour, set_up in hours:
        if run is not None and (run.cluster, run.set_up) == (cluster, set_up):
            run.last = hour
            continue
        if run is not None:
            yield run
        run = _Run(cluster, hour, hour, set_up)
    if run is not None:
        yield run


def _history(
    cluster: str, runs: Sequence[_Run], profiles: dict[int, ExporterProfile]
) -> ExporterHistory:
    changes = []
    # What an hour could not show, as a night without pods, is no change.
    known = profiles[runs[0].set_up]
    for run in runs[1:]:
        after = remembered(known, profiles[run.set_up])
        what = tuple(differences(known, after))
        if what:
            changes.append(ExporterChange(run.first, what))
        known = after
    return ExporterHistory(cluster, known, runs[-1].last, tuple(reversed(changes)))
