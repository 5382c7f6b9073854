"""Reading when workloads saved their state, from gauges that the catalog names.

No exporter has such a series by a name of its own: each training script calls it as it likes.
"""

from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from itertools import count, takewhile

from apps.clusters.adapters.prometheus.http_api import END_MARGIN_SECONDS, one_of, raw
from apps.clusters.adapters.prometheus.serving import ServingLabels
from apps.clusters.adapters.prometheus.window_reader import WindowReader
from apps.clusters.domain.resources import counted
from apps.clusters.domain.window import Window
from apps.clusters.ports import PodCheckpoints

# A series has a sample each scrape: of ten thousand processes an hour is a million of them, of
# which few differ.
_AT_ONCE = timedelta(minutes=10)
_EARLIEST = 1e9
"""Unix seconds of September 2001: a smaller number is a step count, or a duration."""


def read_checkpoints(
    reading: WindowReader, window: Window, metrics: tuple[str, ...]
) -> Iterator[PodCheckpoints]:
    """Yield the checkpoints that series of the window tell, by pod; raises as the port says.

    One query for ten minutes, none without `metrics`. Series without a label of their pod are left
    out, as are values that are no time of a checkpoint; what is left out is remarked.
    """
    found: defaultdict[tuple[str, str], set[float]] = defaultdict(set)
    unusable: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for part in _parts(window) if metrics else ():
        matchers = (one_of("__name__", sorted(metrics)), *reading.matchers)
        query = raw("", matchers, seconds=part.seconds)
        for one in reading.raw(query, part.end_seconds - END_MARGIN_SECONDS, ServingLabels):
            holder, name = one.metric.holder, one.metric.name
            if not holder[1]:
                reading.remark(f"{name} has series without a label of a pod: they count for none")
                continue
            for at, value in one.values:
                if _EARLIEST <= value <= at:
                    found[holder].add(value)
                # A gauge that is 0 was never set, which is no mistake.
                elif value != 0:
                    unusable[name].add(holder)
    for name, holders in sorted(unusable.items()):
        namespace, pod = min(holders)
        reading.remark(
            f"{name} of {counted(len(holders), 'pod')}, as {namespace}/{pod}, has values that are "
            "no time in the past in Unix seconds: they count as no checkpoint"
        )
    for (namespace, pod), times in sorted(found.items()):
        yield PodCheckpoints(namespace, pod, tuple(sorted(times)))


def _parts(window: Window) -> Iterator[Window]:
    starts = takewhile(
        lambda at: at < window.end, (window.start + place * _AT_ONCE for place in count())
    )
    return (Window(at, min(at + _AT_ONCE, window.end)) for at in starts)
