"""What a page weighs over the wire, with static files as a production portal serves them."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
from django.contrib.staticfiles.finders import get_finders
from django.db import connections
from django.test import Client
from django.test.testcases import LiveServerThread
from playwright.sync_api import Page
from pytest_django import Settings

from tests.servers import ROOT, kept
from tests.test_settings import PRODUCTION
from tests.web.conftest import HOURLY, Screen, make_filled_portal
from tests.web.test_browser import draw_all, fill_sign_in, sign_in

pytestmark = [pytest.mark.browser, pytest.mark.long]

FIRST_LOAD = 450_000
LATER_LOAD = 60_000
MOST_REQUESTS = 15
AS_IN_PRODUCTION = {
    "WHITENOISE_USE_FINDERS": False,
    "WHITENOISE_AUTOREFRESH": False,
    "STORAGES": {
        "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
        "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
    },
}


@pytest.fixture(scope="session")
def static_root() -> Path:
    """Return where the static files are as a process of production collects them.

    Compressing takes 15 seconds: it is done when a file or the settings have changed.
    """

    def collect(place: Path) -> None:
        ours = ("GPUPORTAL_", "DATABASE_", "CACHE_", "CELERY_")
        others = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        subprocess.run(
            [sys.executable, "manage.py", "collectstatic", "--noinput", "--verbosity", "0"],
            cwd=ROOT,
            env={**others, **PRODUCTION, "GPUPORTAL_STATIC_DIR": str(place)},
            check=True,
        )

    files = sorted(
        (name, storage.path(name)) for one in get_finders() for name, storage in one.list([])
    )
    contents = (f"{name}\0".encode() + Path(path).read_bytes() for name, path in files)
    return kept("static", collect, (ROOT / "gpuportal" / "settings.py").read_bytes(), *contents)


@pytest.fixture
def collected(settings: Settings, static_root: Path) -> Path:
    settings.STATIC_ROOT = static_root
    for name, value in AS_IN_PRODUCTION.items():
        setattr(settings, name, value)
    return static_root


@pytest.fixture
def served_collected(transactional_db: None, collected: Path, settings: Settings) -> Iterator[str]:
    """Serve a filled portal; WhiteNoise answers for its static files, as in production."""
    settings.ALLOWED_HOSTS = ["localhost"]
    make_filled_portal()
    shared = {
        c.alias: c for c in connections.all() if "mode=memory" in str(c.settings_dict["NAME"])
    }
    for connection in shared.values():
        connection.inc_thread_sharing()
    server = LiveServerThread(
        "localhost", static_handler=cast("Any", _nothing_between), connections_override=shared
    )
    server.daemon = True
    server.start()
    server.is_ready.wait(timeout=10)
    assert server.error is None
    yield f"http://localhost:{server.port}"
    server.terminate()
    for connection in shared.values():
        connection.dec_thread_sharing()


def _nothing_between(application: object) -> object:
    return application


def weighing(page: Page) -> list[int]:
    """Return a list to which every answer that comes over the wire adds its bytes."""
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    lengths: list[int] = []
    session.on("Network.loadingFinished", lambda e: lengths.append(int(e["encodedDataLength"])))
    return lengths


def test_the_first_load_is_light_and_takes_few_requests(
    served_collected: str, screen: Screen
) -> None:
    weights: list[int] = []

    def steps(page: Page) -> None:
        lengths = weighing(page)
        fill_sign_in(page)
        page.wait_for_load_state("networkidle")
        weights.extend(lengths)

    screen.visit(served_collected, steps)
    assert sum(weights) < FIRST_LOAD
    # Signing in and the first page together; what the browser kept in between weighs nothing.
    assert sum(1 for weight in weights if weight) <= MOST_REQUESTS, weights


def test_later_loads_of_every_page_are_lighter(served_collected: str, screen: Screen) -> None:
    weights = {}

    def steps(page: Page) -> None:
        sign_in(page, "cleo", f"/capacity/tiers/gold/?{HOURLY}")
        draw_all(page)  # the home draws without the library: the first chart brings it once
        lengths = weighing(page)
        links = page.locator(".topnav a[data-key]").all()
        pages = {urlsplit(link.get_attribute("href") or "").path for link in links}
        assert len(pages) > 20
        for path in sorted({*pages, "/capacity/tiers/gold/", "/capacity/teams/vision/"}):
            before = sum(lengths)
            page.goto(f"{path}?{HOURLY}")
            draw_all(page)
            weights[path] = sum(lengths) - before

    screen.visit(served_collected, steps)
    assert {path: weight for path, weight in weights.items() if weight >= LATER_LOAD} == {}


def test_the_drawing_library_is_compressed_beforehand_and_kept_for_ever(
    db: None, collected: Path
) -> None:
    (name,) = [p.name for p in (collected / "npm" / "plotly").glob("plotly-basic.min.*.js")]
    answer = Client().get(f"/static/npm/plotly/{name}", headers={"accept-encoding": "gzip, br"})
    length = len(answer.getvalue())
    answer.close()
    assert answer["Content-Encoding"] == "br"
    assert "immutable" in answer["Cache-Control"]
    assert length < 340_000


def test_what_pages_load_is_collected_compressed_under_names_of_its_content(
    static_root: Path,
) -> None:
    names = json.loads((static_root / "staticfiles.json").read_text(encoding="utf-8"))["paths"]
    templates = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "templates").rglob("*.html"))
    loaded = set(re.findall(r"{% static '([^']+)' %}", templates))
    assert "npm/plotly/plotly-basic.min.js" in loaded
    assert loaded <= names.keys()
    assert all((static_root / names[name]).is_file() for name in loaded)
    plotly = static_root / names["npm/plotly/plotly-basic.min.js"]
    packed = plotly.with_name(f"{plotly.name}.gz")
    assert packed.stat().st_size < plotly.stat().st_size / 2
    # A few files of each package, in their four forms, rather than whole packages.
    assert sum(1 for path in (static_root / "npm").rglob("*") if path.is_file()) < 50
