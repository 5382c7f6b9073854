"""`manage.py load_catalog`: what it prints, and how it ends."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from apps.clusters.models import TierRule
from apps.operations.management.commands.load_catalog import CatalogFollower

DESIGN = Path(__file__).parent / "catalogs" / "design.yaml"


def run(*arguments: str, terminal: bool = False) -> str:
    output = _Terminal() if terminal else io.StringIO()
    call_command("load_catalog", *arguments, stdout=output, no_color=True)
    return output.getvalue()


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.django_db
def test_it_prints_one_line_for_each_change_and_then_that_there_is_none() -> None:
    told = run(str(DESIGN), "--dry-run").splitlines()
    assert told[0].startswith("added cluster west: prometheus {url: http://127.0.0.1:9090, ")
    assert told[-1] == "Dry run, nothing written: 12 added"
    assert sum(line.endswith(": p95_seconds 1800, days 28") for line in told) == 1
    assert not TierRule.objects.exists()
    loaded = run(str(DESIGN)).splitlines()
    assert loaded[:-1] == told[:-1]
    assert loaded[-1] == "Loaded: 12 added"
    assert run(str(DESIGN)) == "The catalog is loaded already; nothing changes.\n"


@pytest.mark.django_db
def test_it_says_in_which_clusters_quotas_can_be_changed() -> None:
    told = run(str(DESIGN.with_name("every-key.yaml"))).splitlines()
    assert told[-2] == (
        "Quotas can be changed by the portal in: inside; elsewhere by commits (GitOps)"
    )
    assert "inside" in next(line for line in told if "writer" in line)


@pytest.mark.django_db
def test_a_terminal_gets_a_table() -> None:
    told = run(str(DESIGN), "--dry-run", terminal=True)
    assert "what" in told
    assert "┃" in told
    assert "exclusive-a100" in told
    assert told.endswith("Dry run, nothing written: 12 added\n")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"teams: [{name: a, lead: b}]", "1: teams[0].lead: unknown key; did you mean leads?"),
        (b"teams:\n  - name: \xff\n", "2: is not UTF-8 text; nothing was changed"),
        (b"\xef\xbb\xbfteams: 7", "1: teams: 7 is not a list"),
    ],
)
def test_errors_name_the_file_and_the_line(tmp_path: Path, content: bytes, error: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(content)
    with pytest.raises(CommandError) as raised:
        run(str(path))
    assert str(raised.value).startswith(f"{path}:{error}")
    assert "nothing was changed" in str(raised.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot be read: No such file or directory"):
        run(str(tmp_path / "none.yaml"))


def test_the_process_ends_with_1_and_the_errors_on_standard_error(tmp_path: Path) -> None:
    program = [sys.executable, "manage.py", "load_catalog", "-"]
    done = subprocess.run(  # noqa: S603 - our own command
        program,
        input=b"tiers: [{name: a}]\n",
        capture_output=True,
        check=False,
        cwd=settings.BASE_DIR,
        env={
            **os.environ,
            "DATABASE_URL": f"sqlite:///{tmp_path / 'c.db'}",
            "GPUPORTAL_VAR_DIR": str(tmp_path),
        },
    )
    assert done.returncode == 1
    assert done.stdout == b""
    lines = done.stderr.decode().splitlines()
    assert lines[-2].startswith(
        "CommandError: -:1: tiers[0].sharing: is missing; it must be one of"
    )
    assert lines[-1] == "1 error; nothing was changed"


# ---------------------------------------------------------------- following a file


def test_a_file_that_is_followed_is_loaded_when_it_changes(tmp_path: Path) -> None:
    path, loaded = tmp_path / "catalog.yaml", list[str]()
    follower = CatalogFollower(path, loaded.append)
    follower.check()
    assert loaded == []
    path.write_text("a: 1", encoding="utf-8")
    follower.check()
    follower.check()
    assert loaded == ["a: 1"]
    path.write_text("a: 2", encoding="utf-8")
    follower.check()
    assert loaded == ["a: 1", "a: 2"]


def test_a_file_that_cannot_be_loaded_is_logged_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tries = 0

    def load(_: str) -> None:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise CommandError("line 3: no such key")

    path = tmp_path / "catalog.yaml"
    path.write_text("a: 1", encoding="utf-8")
    follower = CatalogFollower(path, load)
    for _ in range(6):
        follower.check()
    assert tries == 4
    assert caplog.messages == ["line 3: no such key"]


def test_standard_input_cannot_be_followed() -> None:
    with pytest.raises(CommandError, match="--follow needs a FILE"):
        run("-", "--follow")
