"""Reading when workloads saved their state, from gauges that the catalog names.

No exporter has such a series by a name of its own: each training script calls it as it likes.
"""

from collections import defaultdict
from collections.abc import Iterator

from apps.clusters.adapters.prometheus.http_api import END_MARGIN_SECONDS, one_of, raw
from apps.clusters.adapters.prometheus.serving import ServingLabels
from apps.clusters.adapters.prometheus.window_reader import WindowReader
from apps.clusters.domain.window import Window
from apps.clusters.ports import PodCheckpoints


def read_checkpoints(
    reading: WindowReader, window: Window, metrics: tuple[str, ...]
) -> Iterator[PodCheckpoints]:
    """Yield the checkpoints that series of the window tell, by pod; raises as the port says.

    One query for each hour, none without `metrics`. Series without a label of their pod are left
    out.
    """
    found: defaultdict[tuple[str, str], set[float]] = defaultdict(set)
    # By the hour: samples of a day and of thousands of ranks are more than some servers give.
    for hour in window.hours() if metrics else ():
        matchers = (one_of("__name__", sorted(metrics)), *reading.matchers)
        query = raw("", matchers, seconds=hour.seconds)
        for one in reading.raw(query, hour.end_seconds - END_MARGIN_SECONDS, ServingLabels):
            if one.metric.holder[1]:
                # A time to come is none: milliseconds, a step count, or a clock that is wrong.
                saved = {value for at, value in one.values if 0 < value <= at}
                found[one.metric.holder] |= saved
    for (namespace, pod), times in sorted(found.items()):
        if times:
            yield PodCheckpoints(namespace, pod, tuple(sorted(times)))
