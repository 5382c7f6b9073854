"""Which static files there are, and how style sheets and scripts are joined into one of each."""

import os
import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.staticfiles.apps import StaticFilesConfig
from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage


class PortalStaticFiles(StaticFilesConfig):
    """Django's app, without what npm packages bring and no page uses.

    Some of their style sheets name files that the packages do not have, which naming files by
    content takes for an error.
    """

    ignore_patterns = [
        *StaticFilesConfig.ignore_patterns,
        "tabler.css*",
        "tabler-*",
        "*.rtl.*",
        "ext",
        "htmx.js",
        "htmx.[ace]*.*",
    ]


# Later rules win over earlier ones of the same weight, so these come in this order. Any other
# style sheet follows in the order of names; those of one page alone are linked by that page.
_FIRST_STYLES = (
    "tokens",
    "portal",
    "menu",
    "forms",
    "picker",
    "messages",
    "ledger",
    "cards",
    "charts",
    "tables",
    "data_quality",
    "devices",
    "pending",
    "quotas",
    "fairness",
    "costs",
    "recommendations",
    "search",
    "catalog",
    "first_run",
    "explain",
    "channels",
    "quota_requests",
    "review",
    "plotly",
)
_OF_ONE_PAGE = {"styleguide", "statement_print"}
_PRINT = "print"
_BEFORE_STYLES = {"theme"}  # a script that runs while the head is read, and so stands by itself
_SOURCE_MAP = re.compile(r"^/[/*]# sourceMappingURL=.*$", re.MULTILINE)


def styles() -> str:
    """Return the style sheets of all pages as one."""
    folder = _sources() / "css"
    others = {path.stem for path in folder.glob("*.css")} - {*_FIRST_STYLES, *_OF_ONE_PAGE, _PRINT}
    parts = [_text(settings.NODE_MODULES / "@tabler" / "core" / "dist" / "css" / "tabler.min.css")]
    parts += [_text(folder / f"{name}.css") for name in (*_FIRST_STYLES, *sorted(others))]
    return "\n".join((*parts, f"@media print {{\n{_text(folder / f'{_PRINT}.css')}}}\n"))


def scripts() -> str:
    """Return the scripts of all pages as one; each is a function that is called at once."""
    paths = sorted((_sources() / "js").glob("*.js"))
    return "\n".join(_text(path) for path in paths if path.stem not in _BEFORE_STYLES)


def _sources() -> Path:
    return Path(settings.BASE_DIR) / "static"


def _text(path: Path) -> str:
    """Return a file without the name of its source map; nothing where it is not installed."""
    return _SOURCE_MAP.sub("", path.read_text("utf-8")) if path.is_file() else ""


_BUNDLES: dict[str, Callable[[], str]] = {
    "bundle/portal.css": styles,
    "bundle/portal.js": scripts,
}


class BundleFinder(BaseFinder):
    """Finds the joined files: the same in development, in tests and for `collectstatic`.

    They are written to `var/` when they are asked for, and only where their content changed.
    """

    def check(self, **kwargs: Any) -> list[Any]:
        return []

    def find(self, path: str, find_all: Any = False, **kwargs: Any) -> Any:  # noqa: FBT002 - Django's
        """Return where a joined file lies; nothing for other files."""
        make = _BUNDLES.get(path)
        found = [str(_written(path, make()))] if make else []
        return found if find_all else found[0] if found else []

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterable[tuple[str, Any]]:
        """Yield the joined files with the storage that has them."""
        for path, make in _BUNDLES.items():
            _written(path, make())
            yield path, FileSystemStorage(location=_folder())


def _folder() -> Path:
    return Path(settings.VAR_DIR) / "joined"


def _written(name: str, text: str) -> Path:
    path = _folder() / name
    if path.is_file() and path.read_text("utf-8") == text:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    # Several processes may do this at once: none of them must read half a file.
    handle, draft = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    Path(draft).chmod(0o644)
    return Path(draft).replace(path)
