"""The demo: its directory, and who signs in.

`demo` stays loaded as long as the demo runs: what needs the services of rooms is in `demo_setup`.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.contrib.auth import get_user_model
from msgspec import Struct

from apps.accounts.domain.identity import Role


class PlaceTaken(Exception):
    """The place holds something else, or another demo is at work there; says what to do."""


class DemoDirectory(Struct, frozen=True):
    """The demo's folder under `var`, and the database of one scenario in it.

    `own_url` is None where the demo's own file serves; else what tells the database apart that
    DATABASE_URL named, without its password.
    """

    var: Path
    scenario: str
    own_url: str | None = None

    @property
    def folder(self) -> Path:
        return self.var / "demo"

    @property
    def database(self) -> Path:
        """The SQLite file of this scenario."""
        return self.folder / f"{self.scenario}.db"

    @property
    def work(self) -> Path:
        """What the demo's processes have for `GPUPORTAL_VAR_DIR`: their queue and schedule."""
        return self.folder / self.scenario

    @property
    def _note(self) -> Path:
        if self.own_url is None:
            return self.database.with_suffix(".json")
        # Hosts and paths of a URL have signs that no name of a file takes.
        digest = hashlib.sha256(self.own_url.encode()).hexdigest()[:12]
        return self.folder / f"database-{digest}.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the place for one demo at a time. Raises PlaceTaken."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # Not "w", which would erase the number of the process that holds it.
        with (self.folder / "lock").open("a+", encoding="ascii") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                lock.seek(0)
                raise PlaceTaken(
                    f"a demo is running from {self.var} (process {lock.read().strip()}): stop it "
                    "with Ctrl-C, or give this one a GPUPORTAL_VAR_DIR of its own"
                ) from error
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield

    def origin(self) -> str | None:
        """Return where in time the trace was laid in this database; None for a new one.

        Raises PlaceTaken when the database of DATABASE_URL holds another scenario.
        """
        noted = self._noted()
        held = noted.get("scenario", self.scenario)
        if held != self.scenario:
            raise PlaceTaken(
                f"the database of DATABASE_URL holds the demo of {held!r}: start that one "
                f"(SCENARIO={held}), or leave DATABASE_URL out, for each scenario has a file of "
                "its own then"
            )
        return noted.get("origin")

    def note(self, origin: str) -> None:
        """Write down what the database holds from now on."""
        text = json.dumps({"scenario": self.scenario, "origin": origin})
        self._note.write_text(text, encoding="utf-8")

    def _noted(self) -> dict[str, str]:
        if self.own_url is None and not self.database.exists():
            return {}
        try:
            noted = json.loads(self._note.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return {str(key): str(value) for key, value in noted.items()}


APART = "leave DATABASE_URL out, and the demo keeps a file of its own"
PASSWORD = "gpuportal-demo"  # noqa: S105 - printed at every start, and of use on 127.0.0.1 alone
# Marks the accounts that the demo made; no real address can be there (RFC 2606).
DEMO_MAIL = "@demo.invalid"


class RealAccounts(Exception):
    """The database has accounts and none of them is the demo's: a real portal's, it seems."""


class DemoPerson(Struct, frozen=True):
    """`what` says in words what this sign-in shows; `team` is one they are a member of."""

    name: str
    role: Role
    what: str
    team: str = ""

    @property
    def mail(self) -> str:
        return f"{self.name}{DEMO_MAIL}"


PEOPLE = (
    DemoPerson("ada", Role.VIEWER, "team lead"),
    DemoPerson("ben", Role.VIEWER, "member of a team", team="speech"),
    DemoPerson("admin", Role.ADMIN, "platform admin"),
    DemoPerson("finn", Role.FINANCE, "finance"),
)


def check_accounts() -> None:
    """Raise RealAccounts when there are accounts and the demo made none of them."""
    people = get_user_model().objects
    if people.exists() and not people.filter(email__endswith=DEMO_MAIL).exists():
        raise RealAccounts
