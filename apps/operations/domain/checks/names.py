"""Names: given once, known where they are used."""

from collections.abc import Hashable, Iterable, Sequence

from apps.operations.domain.source_positions import (
    Path,
    Problems,
    SourceNode,
    child,
    line_of,
    near,
    shown,
    shown_path,
)

_MOST_SHOWN = 12


def written(root: SourceNode, section: str) -> list[str]:
    """Return the names in a section in order, those of otherwise broken items too."""
    node = child(root, section)
    items = node.value if node is not None and isinstance(node.value, tuple) else ()
    names = (child(item, "name") for item in items)
    return [name.value for name in names if name is not None and isinstance(name.value, str)]


def check_once(keyed: Iterable[tuple[Path, Hashable]], problems: Problems, *, what: str) -> None:
    """Note every key that comes again, with where it came first. None is no key."""
    first: dict[Hashable, Path] = {}
    for path, key in keyed:
        if key is None:
            continue
        if key in first:
            line = line_of(problems.root, first[key])
            problems.add(path, f"{what}: {shown_path(first[key])} on line {line} is the first")
        else:
            first[key] = path


def check_known(
    path: Path, name: str, known: Sequence[str], problems: Problems, *, what: str
) -> None:
    """Note a name that is not among the known ones."""
    if name in known:
        return
    problems.add(path, f"no {what} of that name{near(name, known)} {_list(known, what)}")


def check_free(
    path: Path, name: str, reserved: Iterable[str], problems: Problems, *, what: str
) -> None:
    """Note a name that the portal keeps for itself."""
    if name in reserved:
        problems.add(path, f"{shown(name)} is a {what} of the portal itself; choose another name")


def _list(known: Sequence[str], what: str) -> str:
    if not known:
        return f"the catalog has no {what}s"
    more = f" and {len(known) - _MOST_SHOWN} more" if len(known) > _MOST_SHOWN else ""
    return f"{what}s are {', '.join(known[:_MOST_SHOWN])}{more}"
