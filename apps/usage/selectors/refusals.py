"""Why a reading is refused; the text is for the person who asked."""


class GroupingRefused(ValueError):
    """The groups asked for cannot be had together, or not over this window; says why."""


class CursorRefused(ValueError):
    """The cursor was not given out for this list; start again without it."""
