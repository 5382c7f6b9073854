"""Over which time `watch` can vouch for having seen every change."""

from collections.abc import Collection

# A stream that is well proves itself more often than this: it ends in order after a minute.
GAP_SECONDS = 90.0
# What waits on a stream that is taken up again within this time has hardly waited.
PROMPT_SECONDS = 5.0


class StreamCoverage:
    """The span in which every required stream was followed without a gap; Unix seconds.

    A list begins a span: what happened before it may have been missed. A bookmark, and the end
    of a stream in order, prove that all changes until then were delivered. So does a line,
    except on a stream that was taken up again after a pause: there the server first sends what
    happened meanwhile, nobody can tell how much more of it waits, and the lines are late until
    the next bookmark or the end. A pause of more than GAP_SECONDS leaves a gap: its changes are
    delivered, the times at which they happened are not.
    """

    def __init__(self, required: Collection[str]) -> None:
        self._required = set(required)
        self._waived: set[str] = set()
        self._proofs: dict[str, float] = {}
        # By collection whose lines are late: until when it had been followed before.
        self._behind: dict[str, float] = {}
        self._asked: dict[str, float] = {}
        self._start = 0.0
        self._finished: list[tuple[float, float]] = []
        self._written: tuple[float, float] | None = None

    def listed(self, path: str, at: float) -> None:
        """Note a whole list of a collection: what was proven before it is a span of its own."""
        if path in self._waived:
            self._waived.discard(path)
            self._required.add(path)
        if path not in self._required:
            return
        self._begin(path, at)
        self._behind.pop(path, None)
        self._asked.pop(path, None)

    def waive(self, path: str) -> None:
        """Note that a collection may not be read: until it is listed the others vouch alone."""
        if path in self._required:
            self._required.discard(path)
            self._waived.add(path)
            self._proofs.pop(path, None)
            self._behind.pop(path, None)

    def arrived(self, path: str, at: float, asked: float | None = None) -> bool:
        """Note a line of a stream asked for at `asked`; return whether it is late.

        A late line's change happened at any time since `last_proof`. Without `asked` the stream
        is taken to be as old as the last proof, unless that is older than a stream can be.
        """
        self._opened(path, at, asked)
        if path in self._behind:
            return True
        self._prove(path, at)
        return False

    def caught_up(self, path: str, at: float, asked: float | None = None) -> None:
        """Note a bookmark or an end in order: every change until `at` has arrived."""
        self._opened(path, at, asked)
        self._behind.pop(path, None)
        self._prove(path, at)

    def last_proof(self, path: str) -> float | None:
        """Return until when a collection was followed; None before its first list."""
        return self._behind.get(path, self._proofs.get(path))

    @property
    def span(self) -> tuple[float, float] | None:
        """The present span; None until every required collection was listed."""
        if self._proofs.keys() != self._required:
            return None
        return (self._start, max(self._start, min(self._proofs.values())))

    @property
    def unwritten(self) -> list[tuple[float, float]]:
        """The spans that ended or grew since `written`."""
        span = self.span
        grown = [] if span is None or span == self._written else [span]
        return [*self._finished, *grown]

    def written(self) -> None:
        """Note that these are in the database."""
        self._finished.clear()
        self._written = self.span

    def _opened(self, path: str, at: float, asked: float | None) -> None:
        """Take note of a stream's first sign of life."""
        proof = self.last_proof(path)
        if proof is None or (asked is not None and asked == self._asked.get(path)):
            return
        since = at if asked is None else asked
        if asked is None and since - proof <= GAP_SECONDS:
            return
        if asked is not None:
            self._asked[path] = asked
        if since - proof > GAP_SECONDS:
            self._begin(path, since)
        if since - proof > PROMPT_SECONDS:
            self._behind[path] = proof

    def _begin(self, path: str, at: float) -> None:
        span = self.span
        if span is not None:
            self._finished.append(span)
        self._start = max(at, self._start)
        self._proofs[path] = at

    def _prove(self, path: str, at: float) -> None:
        if path in self._proofs:
            self._proofs[path] = max(at, self._proofs[path])
