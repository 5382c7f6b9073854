"""A namespace in which the portal runs as it is rendered: databases, a cluster, and its pods."""

import secrets
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import psycopg.sql
from msgspec import Struct, field

from simulator.clock import Clock
from simulator.fault_scenarios import site
from simulator.responses import json_response
from simulator.server import LabServer
from tests.alerts.servers import secured
from tests.deploy.pods import Objects, Pod
from tests.deploy.rendering import Manifest, named, overlay_of, rendered
from tests.servers import temporary_pgbouncer, temporary_redis
from tests.simulator.only_faults import OnlyFaults
from tests.upgrade.dumps import kept, restored

COMPONENTS = ("ingress", "exports-volume", "quota-writer", "prometheus-operator")
HOST = "gpuportal.example.org"
READER, WRITER = "gpuportal-reader", "gpuportal-quota-writer"
VARIABLES = (
    f"GPUPORTAL_ALLOWED_HOSTS={HOST}",
    f"GPUPORTAL_URL=https://{HOST}",
    "GPUPORTAL_PGBOUNCER=yes",
    # The simulated cluster is two hours old, and a minute is long for a test.
    "GPUPORTAL_GAP_FILL_DAYS=0",
    "GPUPORTAL_SCHEDULE_SECONDS=5",
)
# Behind a PgBouncer the database has them, not each session: docs/operations.md.
TIMES = {"statement_timeout": 300, "lock_timeout": 30, "idle_in_transaction_session_timeout": 600}
CATALOG = """
clusters:
  - name: home
    prometheus: {{url: "{prometheus}", scrape_interval_seconds: 30}}
    kubernetes: {{in_cluster: true, writer: {{in_cluster: true}}}}
tiers:
  - name: whole-gpu
    sharing: exclusive
    resources: [nvidia.com/gpu]
    promise: "A whole GPU, alone."
teams:
  - name: platform
    namespaces: ["*"]
report: {{time_zone: Europe/Berlin, currency: USD}}
"""
WAITS_AT = 22 * 60  # seconds into a cycle, when the quota of speech-lab holds a pod back
QUOTA = "/api/v1/namespaces/speech-lab/resourcequotas/gpus"


class TlsServer(LabServer):
    """A simulator whose clients go away in the middle of a handshake too."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class ApiServer(Struct):
    """The simulated cluster behind TLS, which knows accounts by their tokens."""

    server: LabServer
    accounts: dict[str, str]
    """Names by token."""
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    """Account, verb and path of each request."""

    def sign_in(self) -> None:
        """Let the server refuse who has no token that it knows."""
        api = self
        base: Any = self.server.RequestHandlerClass

        class Signed(base):  # type: ignore[misc]
            def parse_request(self) -> bool:
                if not super().parse_request():
                    return False
                token = self.headers.get("Authorization", "").partition(" ")[2]
                api.asked.append((api.accounts.get(token, ""), self.command, self.path))
                if token not in api.accounts:
                    refusal = {"kind": "Status", "status": "Failure", "code": 401}
                    self._send(json_response({**refusal, "reason": "Unauthorized"}, 401))
                    return False
                return True

        self.server.RequestHandlerClass = Signed

    def of(self, account: str) -> set[str]:
        """Return the verbs that an account used."""
        return {verb for name, verb, _ in self.asked if name == account}


class Installation(Struct):
    """What is installed; `pods` by name. `rows` reads the database without the pooler."""

    manifests: tuple[Manifest, ...]
    objects: Objects
    api: ApiServer
    database_url: str
    network: str
    pods: dict[str, Pod] = field(default_factory=dict)

    def pod(self, workload: str, number: int = 0) -> Pod:
        """Return a pod of a Deployment or Job, made when it is first asked for."""
        name = f"{workload}-{number}"
        if name not in self.pods:
            (found,) = (
                one
                for one in self.manifests
                if one["metadata"]["name"] == workload and one["kind"] in {"Deployment", "Job"}
            )
            address = f"{self.network}.{len(self.pods) + 1}"
            self.pods[name] = Pod(name, address, found["spec"]["template"], self.objects)
        return self.pods[name]

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database_url, autocommit=True) as session:
            return list(session.execute(query.encode()))

    def rotate_tokens(self) -> None:
        """Renew the tokens of all pods; the old ones are worth nothing from now on."""
        for account in (READER, WRITER):
            self.objects.tokens[account] = secrets.token_urlsafe(16)
        for pod in self.pods.values():
            pod.renew_tokens()
        self.api.accounts.clear()
        self.api.accounts.update({v: k for k, v in self.objects.tokens.items()})


@contextmanager
def _served(server: LabServer) -> Iterator[LabServer]:
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.stop()
            thread.join(20)


@contextmanager
def installed(folder: Path, *variables: str) -> Iterator[Installation]:
    """Yield an installation over a database of the newest release; no pod has begun."""
    manifests = rendered(overlay_of(COMPONENTS, folder / "overlay", *VARIABLES, *variables))
    now = int(datetime.now(UTC).timestamp())
    with ExitStack() as stack:
        dump = list(kept().values())[-1]
        database = stack.enter_context(restored(dump))
        with psycopg.connect(database, autocommit=True) as session:
            for name, seconds in TIMES.items():
                own = psycopg.sql.Identifier(database.rpartition("/")[2])
                words = psycopg.sql.SQL("ALTER DATABASE {} SET {} = {}")
                session.execute(words.format(own, psycopg.sql.SQL(name), f"{seconds}s"))
        pooled = stack.enter_context(temporary_pgbouncer(database))
        redis = stack.enter_context(temporary_redis(secrets.token_urlsafe(16)))
        scenario = OnlyFaults(now - site.CYCLE_SECONDS - WAITS_AT, now + site.CYCLE_SECONDS)
        cluster = TlsServer(scenario, Clock())
        api = ApiServer(cluster, {})
        authority = secured(cluster, folder)
        api.sign_in()
        stack.enter_context(_served(cluster))
        prometheus = stack.enter_context(_served(LabServer(scenario, Clock())))
        maps = {name: one["data"] for name, one in named(manifests, "ConfigMap").items()}
        maps["gpuportal-catalog"] = {"catalog.yaml": CATALOG.format(prometheus=prometheus.url)}
        maps["kube-root-ca.crt"] = {"ca.crt": authority.read_text(encoding="ascii")}
        given = {
            "secret-key": secrets.token_urlsafe(64),
            "database-url": pooled,
            "broker-url": redis,
            "cache-url": redis.removesuffix("0") + "1",
        }
        place = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(cluster.server_address[1]),
        }
        objects = Objects(
            folder, maps, {"gpuportal-secrets": given}, {}, static_files(folder), place
        )
        network = f"127.{secrets.randbelow(250) + 2}.{secrets.randbelow(250) + 2}"
        portal = Installation(manifests, objects, api, database, network)
        portal.rotate_tokens()
        try:
            yield portal
        finally:
            for pod in portal.pods.values():
                pod.terminate()
            for pod in portal.pods.values():
                pod.wait()


def static_files(folder: Path) -> Path:
    """Return what an image has in `var`: here the list of static files alone, under own names.

    Compressing them takes half a minute, and no test here looks at them.
    """
    from django.contrib.staticfiles.finders import get_finders

    found = [one for finder in get_finders() for one in finder.list([])]
    names = [f"{getattr(of, 'prefix', '') or ''}/{path}".lstrip("/") for path, of in found]
    static = folder / "image" / "static"
    static.mkdir(parents=True)
    known = {"paths": {name: name for name in names}, "version": "1.1", "hash": ""}
    (static / "staticfiles.json").write_bytes(msgspec.json.encode(known))
    return static.parent
