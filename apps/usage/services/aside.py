"""What is read of a window beside its device rows, and no GPU-hour depends on."""

from collections.abc import Collection, Sequence

from msgspec import Struct, field

from apps.clusters.domain.devices.errors import HealthAnswer
from apps.clusters.domain.serving_objectives import TtftObjectives
from apps.clusters.domain.window import Window
from apps.clusters.ports import (
    MetricsSource,
    PodCheckpoints,
    ServingPodHour,
    ShownMetric,
    SourceRejected,
)
from apps.usage.domain.serving import ServingState


class AsideAnswer(Struct):
    """What a window shows of inference servers, errors of GPUs and checkpoints.

    `serving` is what inference servers did, `serving_state` whether that could be read. `health` is
    what went wrong on GPUs, `checkpoints` when work was saved. `warnings` are the server's words
    for what these lack. `is_lacking`: a part of it may be there later, as of a store that was away.
    """

    serving: Sequence[ServingPodHour] = ()
    serving_state: ServingState = ServingState.ABSENT
    health: HealthAnswer = field(default_factory=HealthAnswer)
    checkpoints: Sequence[PodCheckpoints] = ()
    warnings: list[str] = field(default_factory=list)
    is_lacking: bool = False


def read_aside(source: MetricsSource, window: Window, objectives: TtftObjectives) -> AsideAnswer:
    """Read what no GPU-hour depends on: some servers give no raw samples, or not so many.

    Asks no database. Raises SourceUnavailable.
    """
    found = AsideAnswer()
    shown = _shown_metrics(source, window, found)
    try:
        found.serving, lacking = source.serving(window, objectives=objectives, shown=shown)
        found.warnings += lacking
        found.is_lacking |= bool(lacking)
        if found.serving:
            found.serving_state = ServingState.READ
    except SourceRejected as error:
        found.serving_state = ServingState.REFUSED
        found.warnings.append(str(error))
    try:
        found.health = source.device_health(window, shown=shown)
        found.is_lacking |= bool(found.health.warnings)
    except SourceRejected as error:
        found.health = HealthAnswer(warnings=(str(error),))
    try:
        found.checkpoints, lacking = source.checkpoints(window)
        found.warnings += lacking
    except SourceRejected as error:
        # Without checkpoints a failure costs its whole run, an upper bound.
        found.warnings.append(str(error))
    return found


def _shown_metrics(
    source: MetricsSource, window: Window, found: AsideAnswer
) -> Collection[ShownMetric] | None:
    """Return which of the metrics there are, noting what that lacks; None where it is refused."""
    try:
        shown, lacking = source.shown_metrics(window)
    except SourceRejected:
        # Together they may be more series than a server counts at once.
        return None
    found.warnings += lacking
    found.is_lacking |= bool(lacking)
    return shown
