"""Beat with a metric of its own life."""

from typing import Any

from celery.beat import PersistentScheduler

from gpuportal.metrics import BEAT_TICK


class MeasuredScheduler(PersistentScheduler):  # type: ignore[misc]
    """Notes at each look when that was: a beat that hangs is as silent as one that died."""

    def tick(self, *args: Any, **kwargs: Any) -> float:
        seconds: float = super().tick(*args, **kwargs)
        BEAT_TICK.set_to_current_time()
        return seconds
