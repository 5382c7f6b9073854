"""Rows that hold from one time to another: how a catalog closes and opens them.

Rows with one key never overlap. What the catalog says holds from its `valid_from` on; before that
nothing changes, so that a fact of an earlier hour keeps the rule it was made with.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Generic, TypeVar, cast

from msgspec import Struct, field
from msgspec.structs import replace

from apps.accounts.domain.rows import CatalogRecord, DatedRecord
from apps.operations.domain.source_positions import Path, shown


class RowAction(StrEnum):
    """`corrected` changes a row in place; `withdrawn` drops a plan that never took effect."""

    ADDED = "added"
    CHANGED = "changed"
    CORRECTED = "corrected"
    CLOSED = "closed"
    WITHDRAWN = "withdrawn"


class ColumnChange(Struct, frozen=True):
    """One value before and after; `old` is None where there was nothing before."""

    name: str
    old: object
    new: object

    def __str__(self) -> str:
        if self.old is None:
            return f"{self.name} {_shown_value(self.new)}"
        return f"{self.name} {_shown_value(self.old)} → {_shown_value(self.new)}"


class RowChange(Struct, frozen=True):
    """One row added, changed or closed. `at` is when it takes effect; None: at once."""

    action: RowAction
    what: str
    name: str
    columns: tuple[ColumnChange, ...] = ()
    at: datetime | None = None

    def __str__(self) -> str:
        since = f" from {self.at.isoformat()}" if self.at else ""
        columns = ", ".join(str(column) for column in self.columns)
        return f"{self.action} {self.what} {self.name}{since}" + (f": {columns}" if columns else "")


class CatalogDifference(Struct, frozen=True):
    """All that a load changes, or would change, in the order of the catalog's sections."""

    changes: tuple[RowChange, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.changes

    def texts(self) -> Iterator[str]:
        """Yield one line of plain text for each change."""
        return (str(change) for change in self.changes)

    def counts(self) -> dict[RowAction, int]:
        """Return how many changes there are of each action that occurs."""
        actions = [change.action for change in self.changes]
        return {action: actions.count(action) for action in RowAction if action in actions}


def _shown_value(value: object) -> str:
    if value in (None, "", (), [], {}):
        return "none"
    match value:
        case datetime():
            return value.isoformat()
        case Mapping():
            return "{" + ", ".join(f"{k}: {_shown_value(v)}" for k, v in value.items()) + "}"
        case tuple() | list():
            return "[" + ", ".join(_shown_value(item) for item in value) + "]"
        case str():
            # Without the quotes that an error has.
            return shown(value)[1:-1]
        case float():
            return repr(value).removesuffix(".0")
        case Decimal():
            return f"{value.normalize():f}"
        case _:
            return shown(value)


# Positions are far apart: a tier that comes between two others changes one row, not all.
SPACING = 65_536
# Below the positions of built-in tiers and the largest integer of a database column.
HIGHEST_POSITION = 1_900_000_000


def positions(names: Sequence[str], held: Mapping[str, int]) -> dict[str, int]:
    """Return increasing positions for `names`; as many as possible keep the one they have.

    When no room is left between two neighbours, all are numbered anew.
    """
    # The longest part that is in order already stays: so the fewest rows change.
    fixed = _longest_increasing([(name, held[name]) for name in names if name in held])
    numbered: dict[str, int] = {}
    low = -1
    for run, end in _runs(names, fixed):
        low = max(low, 0) if end is None else low
        high = low + SPACING * (len(run) + 1) if end is None else fixed[end]
        # Fewer whole numbers lie in between than there are names.
        if high - low <= len(run) or high > HIGHEST_POSITION:
            return _numbered_anew(names)
        gap = high - low
        for place, name in enumerate(run, start=1):
            numbered[name] = low + gap * place // (len(run) + 1)
        if end is not None:
            low = numbered[end] = high
    return numbered


def _numbered_anew(names: Sequence[str]) -> dict[str, int]:
    step = min(SPACING, HIGHEST_POSITION // (len(names) + 1))
    return {name: step * place for place, name in enumerate(names, start=1)}


def _runs(names: Sequence[str], fixed: Mapping[str, int]) -> Iterator[tuple[list[str], str | None]]:
    """Yield names without a place of their own, with the fixed name after them (None: the end)."""
    run: list[str] = []
    for name in names:
        if name in fixed:
            yield run, name
            run = []
        else:
            run.append(name)
    if run:
        yield run, None


def _longest_increasing(placed: Sequence[tuple[str, int]]) -> dict[str, int]:
    """Return the longest part of `placed`, in its order, whose positions increase."""
    tails: list[int] = []
    ends: list[int] = []
    before: list[int | None] = []
    # Patience sorting: `ends[n]` closes the best run of n + 1 names, `before` leads back.
    for index, (_, position) in enumerate(placed):
        length = bisect_left(tails, position)
        before.append(ends[length - 1] if length else None)
        tails[length : length + 1] = [position]
        ends[length : length + 1] = [index]
    kept: dict[str, int] = {}
    at = ends[-1] if ends else None
    while at is not None:
        kept[placed[at][0]] = placed[at][1]
        at = before[at]
    return kept


AnyRecord = TypeVar("AnyRecord", bound=CatalogRecord)
AnyDated = TypeVar("AnyDated", bound=DatedRecord)


class RecordKind(Struct, Generic[AnyRecord], frozen=True):
    """How to tell the records of a table apart and compare them.

    `columns` are compared and shown; `quiet` ones are not worth telling of a new row. `corrects`
    allows a row that is in force to be changed from its very start.
    """

    what: str
    key: Callable[[AnyRecord], Hashable]
    name: Callable[[AnyRecord], str]
    columns: tuple[str, ...]
    quiet: frozenset[str] = frozenset()
    corrects: bool = False


class DesiredRow(Struct, Generic[AnyRecord], frozen=True):
    """A record that the catalog declares, and its place in the text."""

    record: AnyRecord
    path: Path


class TimelinePlan(Struct, Generic[AnyRecord]):
    """What is to be stored: `saved` without pk are new; `withdrawn` are pks to delete.

    `refused` holds wishes that would rewrite what is in force, with the reason.
    """

    saved: list[AnyRecord] = field(default_factory=list)
    withdrawn: list[int] = field(default_factory=list)
    changes: list[RowChange] = field(default_factory=list)
    refused: list[tuple[Path, str]] = field(default_factory=list)


def plan_current(
    held: Iterable[AnyRecord],
    wished: Iterable[AnyRecord],
    kind: RecordKind[AnyRecord],
    *,
    retire: Callable[[AnyRecord], AnyRecord],
) -> TimelinePlan[AnyRecord]:
    """Plan a table without history: add, change in place, and `retire` what is not wished."""
    plan: TimelinePlan[AnyRecord] = TimelinePlan()
    left = {kind.key(record): record for record in held}
    for wish in wished:
        before = left.pop(kind.key(wish), None)
        after = _with(wish, pk=before.pk if before else None)
        action = RowAction.CHANGED if before else RowAction.ADDED
        _save_current(plan, kind, action, before, after)
    for before in left.values():
        _save_current(plan, kind, RowAction.CLOSED, before, retire(before))
    return plan


def _save_current(
    plan: TimelinePlan[AnyRecord],
    kind: RecordKind[AnyRecord],
    action: RowAction,
    before: AnyRecord | None,
    after: AnyRecord,
) -> None:
    if before is not None and _content(kind, before) == _content(kind, after):
        return
    plan.saved.append(after)
    plan.changes.append(
        RowChange(action, kind.what, kind.name(after), _columns(kind, before, after))
    )


def plan_dated(
    held: Iterable[AnyDated],
    wishes: Iterable[DesiredRow[AnyDated]],
    kind: RecordKind[AnyDated],
    *,
    now: datetime,
    opening: datetime,
) -> TimelinePlan[AnyDated]:
    """Plan a table with history.

    `opening` is when a row begins that has no `valid_from` and none in force to go on from: `now`,
    or the beginning of time for the first catalog of a portal.
    """
    rows: dict[Hashable, list[AnyDated]] = {}
    for record in held:
        rows.setdefault(kind.key(record), []).append(record)
    asked: dict[Hashable, list[DesiredRow[AnyDated]]] = {}
    for wish in wishes:
        asked.setdefault(kind.key(wish.record), []).append(wish)
    plan: TimelinePlan[AnyDated] = TimelinePlan()
    # In the catalog's order first, then what it names no more.
    for key in [*asked, *(key for key in rows if key not in asked)]:
        _Timeline(kind, sorted(rows.get(key, ()), key=_start), now).plan(
            asked.get(key, ()), plan, opening
        )
    return plan


class _Timeline(Struct, Generic[AnyDated]):
    """The rows of one key, oldest first."""

    kind: RecordKind[AnyDated]
    held: list[AnyDated]
    now: datetime

    def plan(
        self,
        wishes: Sequence[DesiredRow[AnyDated]],
        plan: TimelinePlan[AnyDated],
        opening: datetime,
    ) -> None:
        target = self._target([self._begun(wish.record, opening) for wish in wishes])
        placed = [_with(record, pk=self._pk_at(_start(record))) for record in target]
        dropped = self._move(placed)
        # Without a wish rows are only closed, which rewrites nothing.
        reason = self._refusal(placed, dropped) if wishes else None
        if reason is not None:
            plan.refused.append((wishes[0].path, reason))
            return
        before = {record.pk: record for record in self.held}
        for index, record in enumerate(placed):
            earlier = placed[index - 1] if index else None
            self._save(plan, before.get(record.pk), record, earlier, placed[index + 1 :])
        for record in dropped:
            plan.withdrawn.append(cast("int", record.pk))
            plan.changes.append(self._change(RowAction.WITHDRAWN, record, (), _start(record)))

    def _begun(self, wish: AnyDated, opening: datetime) -> AnyDated:
        """Return the wish with its start: its own, that of the same rule in force, or now."""
        if wish.valid_from is not None:
            return wish
        in_force = next((r for r in self.held if _holds(r, self.now)), None)
        # So that the same text, which names no day, changes nothing when it is loaded again.
        if in_force is not None and self._same(in_force, wish):
            return _with(wish, valid_from=in_force.valid_from)
        return _with(wish, valid_from=opening)

    def _target(self, begun: list[AnyDated]) -> list[AnyDated]:
        """Return the rows as they are to be: history up to the first wish, then the wishes.

        A plan that is no longer wished is left out, and the row that it would have ended goes on.
        """
        begun = sorted(begun, key=_start)
        first = _start(begun[0]) if begun else self.now
        ends: list[datetime | None] = [*(_start(record) for record in begun[1:]), None]
        past = [
            _with(r, valid_to=first if _holds(r, self.now) else _sooner(r.valid_to, first))
            for r in self.held
            if _start(r) <= self.now and _start(r) < first
        ]
        rows: list[AnyDated] = []
        for row in (*past, *(_with(r, valid_to=end) for r, end in zip(begun, ends, strict=False))):
            last = rows[-1] if rows else None
            if last is not None and last.valid_to == row.valid_from and self._same(last, row):
                rows[-1] = _with(last, valid_to=row.valid_to)
            else:
                rows.append(row)
        return rows

    def _pk_at(self, start: datetime) -> int | None:
        return next((r.pk for r in self.held if _start(r) == start), None)

    def _move(self, placed: list[AnyDated]) -> list[AnyDated]:
        """Let new rows take over held ones of the same content; return those left over."""
        taken = {record.pk for record in placed}
        dropped = []
        for record in self.held:
            if record.pk in taken:
                continue
            for index, row in enumerate(placed):
                if row.pk is None and self._same(row, record):
                    placed[index] = _with(row, pk=record.pk)
                    break
            else:
                dropped.append(record)
        return dropped

    def _refusal(self, placed: list[AnyDated], dropped: list[AnyDated]) -> str | None:
        """Say why this cannot be stored without rewriting what was in force; None when it can."""
        lost = [record for record in dropped if _start(record) < self.now]
        if lost:
            return (
                f"would take effect before {_start(lost[-1]).isoformat()}, since when other "
                f"values of {self.kind.what} {self.kind.name(lost[-1])} are in force; "
                "give it a later valid_from"
            )
        if self.kind.corrects:
            return None
        before = {record.pk: record for record in self.held}
        for row in placed:
            old = before.get(row.pk)
            if old and not self._same(old, row) and _start(row) < self.now:
                return (
                    f"changes {self.kind.what} {self.kind.name(row)} from "
                    f"{_start(row).isoformat()} on, when the loaded one began, and so its whole "
                    "history; give the change a later valid_from, or leave valid_from out to "
                    "change it now"
                )
        return None

    def _save(
        self,
        plan: TimelinePlan[AnyDated],
        before: AnyDated | None,
        after: AnyDated,
        earlier: AnyDated | None,
        later: Sequence[AnyDated],
    ) -> None:
        if before is not None and self._same(before, after) and _span(before) == _span(after):
            return
        plan.saved.append(after)
        if before is None:
            replaced = earlier if earlier and earlier.valid_to == after.valid_from else None
            action = RowAction.CHANGED if replaced else RowAction.ADDED
            columns = _columns(self.kind, replaced, after)
            plan.changes.append(self._change(action, after, columns, _start(after)))
        elif not self._same(before, after) or before.valid_from != after.valid_from:
            columns = _columns(self.kind, before, after) + _moved(before, after)
            plan.changes.append(self._change(RowAction.CORRECTED, after, columns, _start(after)))
        elif after.valid_to is None:
            columns = (ColumnChange("valid_to", before.valid_to, None),)
            plan.changes.append(self._change(RowAction.CHANGED, after, columns, None))
        # Where another row follows at once, that one tells of the change.
        elif not (later and later[0].valid_from == after.valid_to):
            plan.changes.append(self._change(RowAction.CLOSED, after, (), after.valid_to))

    def _change(
        self,
        action: RowAction,
        record: AnyDated,
        columns: tuple[ColumnChange, ...],
        at: datetime | None,
    ) -> RowChange:
        return RowChange(action, self.kind.what, self.kind.name(record), columns, at)

    def _same(self, one: AnyDated, other: AnyDated) -> bool:
        return _content(self.kind, one) == _content(self.kind, other)


def _start(record: DatedRecord) -> datetime:
    """Return when a row begins; wishes have been given a start before this is asked."""
    return cast("datetime", record.valid_from)


def _span(record: DatedRecord) -> tuple[datetime | None, datetime | None]:
    return record.valid_from, record.valid_to


def _holds(record: DatedRecord, at: datetime) -> bool:
    return _start(record) <= at and (record.valid_to is None or at < record.valid_to)


def _sooner(end: datetime | None, limit: datetime) -> datetime:
    return limit if end is None else min(end, limit)


def _moved(before: DatedRecord, after: DatedRecord) -> tuple[ColumnChange, ...]:
    if before.valid_from == after.valid_from:
        return ()
    return (ColumnChange("valid_from", before.valid_from, after.valid_from),)


def _content(kind: RecordKind[AnyRecord], record: AnyRecord) -> tuple[object, ...]:
    return tuple(getattr(record, column) for column in kind.columns)


def _columns(
    kind: RecordKind[AnyRecord], before: AnyRecord | None, after: AnyRecord
) -> tuple[ColumnChange, ...]:
    """Return the columns that differ; of a new row those that hold something."""
    columns = []
    for name in kind.columns:
        new = getattr(after, name)
        if before is not None and getattr(before, name) != new:
            columns.append(ColumnChange(name, getattr(before, name), new))
        elif before is None and name not in kind.quiet and new not in (None, "", (), {}):
            columns.append(ColumnChange(name, None, new))
    return tuple(columns)


def _with(record: AnyRecord, **changes: object) -> AnyRecord:
    """Return a copy with some fields changed (mypy cannot know them)."""
    return cast("AnyRecord", replace(cast("Any", record), **changes))
