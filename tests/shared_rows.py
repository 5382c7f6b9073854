"""Worlds in the database that the tests of a module share."""

import fcntl
import pickle
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from copy import deepcopy
from functools import partial, wraps
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pytest
from django.conf import settings
from django.db import connection, transaction
from pytest_django import DjangoDbBlocker

from tests.saved_rows import SavedRows, give_no_number_again, numbers_given

P = ParamSpec("P")
T = TypeVar("T")

_SHARED = "fills_the_database"
_UPON = "fills_it_upon"
_EARLY = "takes_long_to_fill_it"
_open: list[pytest.FixtureRequest] = []
_EMPTYING = {"transactional_db", "live_server"}


def shared(make: Callable[..., Any], *, upon: str = "", early: bool = False) -> Any:
    """Return a fixture that fills the database once for a module.

    Each test's own transaction nests in this one, so what a test changes is undone after it. Rows
    that the test holds are not: hand it a copy (`copy_of`). A module shares one world, and others
    only `upon` it: `make` takes what that fixture gave. Tests of less run before it is made
    (`least_first`). The tests of a world that takes long to make are for the beginning (`early`):
    of the last ones of a process others take some. One process makes it, and the others take its
    rows and files.
    """

    def made(
        request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: DjangoDbBlocker
    ) -> Iterator[Any]:
        ground = [deepcopy(request.getfixturevalue(upon))] if upon else []
        with ExitStack() as outer:
            with django_db_blocker.unblock():
                assert connection.in_atomic_block == bool(upon), "a module shares one world"
                outer.enter_context(transaction.atomic())
                first = partial(_made_by_one, make, _folder_of_all(request)) if early else make
                world = make(*ground) if upon else _made_once(make, first)
            _open.append(request)
            yield world
            _open.remove(request)
            with django_db_blocker.unblock():
                transaction.set_rollback(True)
                outer.close()

    setattr(made, _SHARED, 2 if upon else 1)
    setattr(made, _UPON, upon)
    setattr(made, _EARLY, early)
    return pytest.fixture(scope="module")(made)


def copy_of(world: str, made_of: Callable[[Any], Any] = lambda copied: copied) -> Any:
    """Return a fixture that gives each test its own copy of what a shared fixture gave.

    The test gets what `made_of` makes of the copy.
    """

    def own(**given: Any) -> Any:
        return made_of(deepcopy(given[world]))

    # pytest goes by the names of parameters; with `db` the test has a transaction of its own.
    names = [Parameter(name, Parameter.KEYWORD_ONLY) for name in (world, "db")]
    own.__signature__ = Signature(names)  # type: ignore[attr-defined]
    return pytest.fixture(own)


def remembered(make: Callable[P, T]) -> Callable[P, T]:
    """Return `make`, which puts the rows back that it wrote when the same was made before.

    Only where the database is as it was then; what is made beside is made anew. It takes what can
    be compared: names, dates, lists of them, and functions of a module.
    """
    known: dict[Any, tuple[SavedRows, Any, SavedRows]] = {}

    @wraps(make)
    def made(*args: P.args, **kwargs: P.kwargs) -> T:
        if not connection.in_atomic_block:
            return make(*args, **kwargs)  # rows are put back in no order that a key allows
        given = (_fixed(args), _fixed(sorted(kwargs.items())))
        before = SavedRows.now()
        if given not in known or known[given][0] != before:
            world = make(*args, **kwargs)
            known[given] = before, deepcopy(world), SavedRows.now()
            return world
        _, kept, rows = known[given]
        rows.put_back()
        again: T = deepcopy(kept)
        return again

    return made


def _fixed(value: Any) -> Any:
    return tuple(map(_fixed, value)) if isinstance(value, list | tuple) else value


_made: dict[Callable[..., Any], tuple[Any, SavedRows]] = {}


def _made_once(make: Callable[..., Any], first: Callable[..., Any]) -> Any:
    """Return what `make` gives; another module that asks for it gets the rows that it wrote.

    The first time it is made by `first`.
    """
    if make not in _made:
        world = first()
        _made[make] = deepcopy(world), SavedRows.now()
        return world
    world, rows = _made[make]
    rows.put_back()
    return deepcopy(world)


def _folder_of_all(request: pytest.FixtureRequest) -> Path:
    """Return a folder that all processes of this run share."""
    own: Path = request.getfixturevalue("tmp_path_factory").getbasetemp()
    return own.parent if hasattr(request.config, "workerinput") else own


def _made_by_one(make: Callable[..., Any], folder: Path) -> Any:
    """Return what `make` gives: here, or as the process that was first left it in the folder.

    Its rows and its files in `VAR_DIR` are taken. Whoever comes meanwhile waits.
    """
    place = folder / f"{make.__module__}.{make.__qualname__}"
    files = Path(settings.VAR_DIR)
    with place.with_name(f"{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = place.with_name(f"{place.name}.world")
        if not kept.exists():
            there = set(files.rglob("*"))
            world = make()
            for path in sorted(set(files.rglob("*")) - there):
                if path.is_file():
                    copy = place / path.relative_to(files)
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(path, copy)
            # Only our own rows are read again.
            kept.write_bytes(pickle.dumps((world, SavedRows.now(), numbers_given())))
            return world
    world, rows, numbers = pickle.loads(kept.read_bytes())  # noqa: S301 - written above
    rows.put_back()
    give_no_number_again(numbers)
    if place.exists():
        shutil.copytree(place, files, dirs_exist_ok=True)
    return world


def close_others(item: pytest.Item) -> None:
    """Close the worlds of the module that a test does not ask for.

    `least_first` makes that rare: a process that takes tests from another may get some of a module
    that it has run the rest of.
    """
    wanted = set(getattr(item, "fixturenames", ()))
    # A world that another one stands upon is asked for by that one alone.
    wanted |= {getattr(one.func, _UPON, "") for one in _definitions(item)}
    for request in reversed(_open.copy()):
        if request.fixturename not in wanted:
            request._fixturedef.finish(item._request)  # type: ignore[attr-defined]


def least_first(items: list[pytest.Item]) -> None:
    """Put the tests of a shared world after those of their module that begin with less.

    Long tests come first of all, and those of worlds that take long: others fill the time that
    they leave, and no process works on one while the others have nothing left.
    """
    parts: dict[tuple[str, bool], int] = {}
    for item in items:
        parts.setdefault(_part(item), len(parts))
    items.sort(key=lambda item: (not _is_early(item), parts[_part(item)], _shares(item)))


def _part(item: pytest.Item) -> tuple[str, bool]:
    """Return the module and whether the test empties the database: such come after all others."""
    marker = item.get_closest_marker("django_db")
    fixtures = set(getattr(item, "fixturenames", ()))
    empties = marker is not None and bool(marker.kwargs.get("transaction"))
    return item.nodeid.partition("::")[0], empties or bool(fixtures & _EMPTYING)


def _shares(item: pytest.Item) -> int:
    return max((getattr(one.func, _SHARED, 0) for one in _definitions(item)), default=0)


def _is_early(item: pytest.Item) -> bool:
    if item.get_closest_marker("long") is not None:
        return not _part(item)[1]
    return any(getattr(one.func, _EARLY, False) for one in _definitions(item))


def _definitions(item: pytest.Item) -> list[Any]:
    """Return the fixtures that a test names, and those that they name."""
    info = getattr(item, "_fixtureinfo", None)
    return [found[-1] for found in info.name2fixturedefs.values()] if info else []
