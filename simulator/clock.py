"""The lab's clock: the real one, or one that stands still until it is moved."""

import time
from threading import Condition


class Clock:
    """Real time, with a way to wait for a moment that closing the clock cuts short."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._closed = False
        self._nudges = 0

    @property
    def closed(self) -> bool:
        return self._closed

    def now_ms(self) -> int:
        """Return the time in Unix milliseconds."""
        return time.time_ns() // 1_000_000

    @property
    def nudges(self) -> int:
        """How often something happened that no clock foretells."""
        return self._nudges

    def nudge(self) -> None:
        """Wake those who wait for a moment: something has happened now."""
        with self._changed:
            self._nudges += 1
            self._changed.notify_all()

    def wait(
        self, until_ms: int | None, at_most_seconds: float, *, nudges: int | None = None
    ) -> None:
        """Return at `until_ms`, after `at_most_seconds` of real time, or when the clock closes.

        Given the `nudges` of a moment ago, it returns as well when there are more.
        """
        deadline = time.monotonic() + at_most_seconds
        with self._changed:
            while not self._closed and not self._reached(until_ms):
                if nudges is not None and self._nudges != nudges:
                    return
                left = deadline - time.monotonic()
                if left <= 0:
                    return
                self._changed.wait(min(left, self._real_seconds_to(until_ms, left)))

    def close(self) -> None:
        """Let all blocked threads go on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _reached(self, until_ms: int | None) -> bool:
        return until_ms is not None and self.now_ms() >= until_ms

    def _real_seconds_to(self, until_ms: int | None, otherwise: float) -> float:
        if until_ms is None:
            return otherwise
        return max(0.001, (until_ms - self.now_ms()) / 1000.0)


class PinnedClock(Clock):
    """A clock that stands at `now_ms` until `advance`."""

    def __init__(self, now_ms: int) -> None:
        super().__init__()
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, seconds: float) -> None:
        """Move the clock on and wake those who wait for a moment."""
        with self._changed:
            self._now_ms += round(seconds * 1000)
            self._changed.notify_all()

    def _real_seconds_to(self, until_ms: int | None, otherwise: float) -> float:
        return otherwise
