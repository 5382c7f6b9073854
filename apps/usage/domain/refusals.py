"""Why a reading is refused; the text is for the person who asked."""

from collections.abc import Mapping, Sequence


class GroupingRefused(ValueError):
    """The groups asked for cannot be had together, or not over this window; says why."""


class CursorRefused(ValueError):
    """The cursor was not given out for this list; start again without it."""


class NamesUnknown(ValueError):
    """Filters name what there never was; `unknown` maps a dimension to the names asked for and
    to those there are."""

    def __init__(self, unknown: Mapping[str, tuple[Sequence[str], Sequence[str]]]) -> None:
        self.unknown = unknown
        super().__init__("; ".join(self.texts().values()))

    def texts(self) -> dict[str, str]:
        """Return what to say of each dimension."""
        return {
            name: f"unknown {name} {', '.join(asked)}; known: {', '.join(there) or 'none yet'}"
            for name, (asked, there) in self.unknown.items()
        }
