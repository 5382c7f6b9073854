"""Over which time `watch` can vouch for having seen every change."""

from collections.abc import Collection


class Coverage:
    """The span in which every required stream was followed without a gap; Unix seconds.

    A list begins a span: what happened before it may have been missed. Any line of a stream, and
    its end in order, prove that all changes until then were delivered. So a connection that
    broke and was taken up again at its last version leaves no gap.
    """

    def __init__(self, required: Collection[str]) -> None:
        self._required = frozenset(required)
        self._proofs: dict[str, float] = {}
        self._start = 0.0
        self._finished: list[tuple[float, float]] = []
        self._written: tuple[float, float] | None = None

    def listed(self, path: str, at: float) -> None:
        """Note a whole list of a collection: what was proven before it is a span of its own."""
        if path not in self._required:
            return
        span = self.span
        if span is not None:
            self._finished.append(span)
        self._start = max(at, self._start)
        self._proofs[path] = at

    def proven(self, path: str, at: float) -> None:
        """Note that every change of a collection until `at` has arrived."""
        if path in self._proofs:
            self._proofs[path] = max(at, self._proofs[path])

    def last_proof(self, path: str) -> float | None:
        """Return until when a collection was followed; None before its first list."""
        return self._proofs.get(path)

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
