"""The steps of collecting, taken here and now: by the simulator's clock, through a proxy."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta

from django.apps import apps
from django.core.management.color import no_style
from django.db import connection, transaction
from msgspec import Struct

from apps.clusters.adapters.prometheus.client import PrometheusApi
from apps.clusters.adapters.prometheus.http_api import PrometheusConfig
from apps.clusters.adapters.prometheus.source import PrometheusSource
from apps.clusters.domain.window import Window
from apps.clusters.gateways import cluster_source
from apps.clusters.models import Cluster, WatchCoverage
from apps.clusters.ports import SourceRejected, SourceUnavailable
from apps.clusters.services import store_device_states
from apps.clusters.services.watch.follow import snapshot
from apps.costs.services.pricing import fold_workloads
from apps.operations.services import derive_after_history, load_catalog
from apps.pending.services import refresh
from apps.usage.domain.collection import CollectionState, due_again
from apps.usage.models import CollectionWindow
from apps.usage.services import HourOutcome, collect_window
from simulator.clock import PinnedClock
from simulator.fault_scenarios import site
from simulator.fault_scenarios.manifests import PRODUCT
from simulator.scenarios.base import Scenario
from tests.faults.facts import Facts, facts
from tests.faults.proxy import Proxy, Script, proxy, undisturbed
from tests.simulator.client import serving
from tests.simulator.only_faults import at_minute, faults_once

START = datetime.fromtimestamp(at_minute(0), UTC)
"""Two hours in which every cause of pending work comes and clears: the first of them is watched."""
HOURS = (Window.hour(START), Window.hour(START + timedelta(hours=1)))
LOOKS = range(2, 60, 19)
"""Minutes at which the API server is asked."""
LOOKED_AT = [START + timedelta(days=1, minutes=minutes) for minutes in (-30, 0, 30)]
"""When what follows is computed; the simulated cluster is there until the end of that day."""
_ROUNDS = 40
_LEASES_SECONDS = 900.0
_LONGEST_PAUSE_SECONDS = 1800.0
"""After it every hour that failed is due again."""


class Collecting(Struct):
    """A portal of this process's database that collects a served cluster through `door`."""

    door: Proxy
    clock: PinnedClock
    source: PrometheusSource
    hours: Sequence[Window] = HOURS
    around: Callable[[], AbstractContextManager[None]] = nullcontext
    """Each hour is collected and each round of deriving made in it; it may keep errors back."""

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now_ms() / 1000, UTC)

    def move_to(self, at: datetime) -> None:
        self.clock.advance((at - self.now()).total_seconds())

    def look(self) -> bool:
        """Take one look at the API server, as a watch that begins; say whether it succeeded."""
        cluster = Cluster.objects.get()
        source = cluster_source(cluster)
        assert source is not None
        spoiled = self.door.faults.total()
        try:
            snapshot(cluster, source, self.now())
        except (SourceUnavailable, SourceRejected):
            return False
        finally:
            source.close()
        # One look after the other stands for a watch that never was away.
        WatchCoverage.objects.update_or_create(
            cluster=cluster, start=START, defaults={"end": self.now()}
        )
        return self.door.faults.total() == spoiled

    def watch(self) -> None:
        """Look at the API server through the watched hour, each time until nothing was spoiled."""
        for minute in LOOKS:
            self.move_to(START + timedelta(minutes=minute))
            _until(self.look)
            refresh(Cluster.objects.get().pk, now=self.now())
        WatchCoverage.objects.update(end=HOURS[0].end)

    def collect(self, hour: Window) -> HourOutcome:
        (outcome,) = collect_window("lab", hour, now=self.now(), source=self.source)
        return outcome

    def collect_all(self, hours: Sequence[Window] = HOURS) -> None:
        """Collect hours as beat would: again until none of them is due, now or later."""
        self.hours = hours
        self.move_to(max(max(hour.end for hour in hours) + timedelta(minutes=10), self.now()))
        for hour in hours:
            with self.around():
                self.collect(hour)
        self.collect_due()

    def collect_due(self) -> None:
        """Collect what is due again until nothing ever is."""
        _until(self._collect_due)

    def _collect_due(self) -> bool:
        """Collect the hours that are due, or wait half an hour; say whether none ever is."""
        rows = {row.hour: row for row in CollectionWindow.objects.order_by("hour")}
        due = [hour for hour in self.hours if _is_due(rows.get(hour.start), self.now())]
        for hour in due:
            with self.around():
                self.collect(hour)
        if due:
            return False
        if all(
            row.state == CollectionState.COMPLETE and row.again_at is None for row in rows.values()
        ):
            return True
        self.clock.advance(_LONGEST_PAUSE_SECONDS)
        return False

    def derive(self) -> bool:
        """Compute what follows from the hours; say whether every step did."""
        with self.around():
            done = all(one.done is not None for one in derive_after_history(self.now))
            fold_workloads(now=self.now())
            return done
        return False  # it was kept back why

    def finish(self, end: datetime) -> Facts:
        """Compute what follows from all hours up to `end` with nothing spoiled; return the facts.

        Twice: what one step finds may be what a step before it has to follow.
        """
        self.door.script = undisturbed
        self.move_to(max(self.now(), end + timedelta(hours=20)))
        assert self.derive()
        self.clock.advance(_LONGEST_PAUSE_SECONDS)
        assert self.derive()
        return facts()

    def derive_all(self) -> None:
        """Derive until every step did, and once more, half a day after."""
        self.move_to(START + timedelta(days=1))
        # When a GPU was seen first is what somebody saw, however often the rest is done again.
        store_device_states(Cluster.objects.get().pk, self.now())
        _until(self._derive_or_wait)
        self.around = nullcontext
        # The simulated cluster is there until the end of the day after.
        self.move_to(START + timedelta(hours=36))
        assert self.derive()

    def _derive_or_wait(self) -> bool:
        """Derive, or wait until the leases of who was lost have run out; say which."""
        done = self.derive()
        if not done:
            self.clock.advance(_LEASES_SECONDS)
        return done

    def whole_run(self) -> Facts:
        """Watch, collect and derive as often as it takes; return the facts."""
        self.watch()
        self.collect_all()
        self.derive_all()
        return facts()

    def run(self) -> Facts:
        """Watch, collect and derive, from an empty database to its facts."""
        self.watch()
        self.collect_all()
        # Devices are looked at while nothing is spoiled, then spoiled, then once more: what they
        # are known for begins with the first look, and what they say is what the last one tells.
        spoiling, self.door.script = self.door.script, undisturbed
        self.move_to(LOOKED_AT[0])
        store_device_states(Cluster.objects.get().pk, self.now())
        self.door.script = spoiling
        self.move_to(LOOKED_AT[1])
        self.derive()
        self.door.script = undisturbed
        self.move_to(LOOKED_AT[2])
        assert self.derive()
        return facts()


def _is_due(row: CollectionWindow | None, now: datetime) -> bool:
    if row is None:
        return True
    # Who was lost with the hour in hand has not given it back.
    is_free = row.lease_until is None or row.lease_until <= now
    return is_free and due_again(
        CollectionState(row.state),
        row.attempts,
        partials=row.partials,
        last=row.attempted_at,
        now=now,
        again=row.again_at,
    )


def _until(done: Callable[[], bool]) -> None:
    for _ in range(_ROUNDS):
        if done():
            return
    raise AssertionError(f"not done after {_ROUNDS} rounds")


def parts_of(span: Window, hours: int) -> Iterator[Window]:
    """Yield the parts of a span of so many hours each, the last one shorter."""
    at = span.start
    while at < span.end:
        yield Window(at, min(at + timedelta(hours=hours), span.end))
        at += timedelta(hours=hours)


def catalog(url: str, zone: str = "UTC") -> str:
    """Return the catalog of the fault scenarios' cluster: one tier, a team for each namespace."""
    teams = "".join(
        f"  - {{name: {name}, cost_center: CC-{name}, namespaces: [{name}-lab], "
        f"entitlements: {{{site.TIER.name}: {gpus}}}}}\n"
        for name, gpus in site.ENTITLED.items()
    )
    return (
        f"clusters:\n  - name: lab\n"
        f'    prometheus: {{url: "{url}", matchers: {{cluster: lab}}}}\n'
        f'    kubernetes: {{api_server: "{url}"}}\n'
        f"tiers:\n  - name: {site.TIER.name}\n    sharing: exclusive\n"
        f"    resources: [nvidia.com/gpu]\n    promise: A whole GPU.\n"
        f"teams:\n{teams}"
        f"prices:\n  - {{gpu_model: {PRODUCT}, capacity_type: on-demand, currency: USD, "
        f'per_gpu_hour: "{site.PRICE}", valid_from: 2000-01-01}}\n'
        f"report: {{time_zone: {zone}, currency: USD}}\n"
    )


def count_ids_anew() -> None:
    """Let ids begin at 1: digests and blobs of facts have them, and a rollback keeps counters."""
    with connection.cursor() as cursor:
        for statement in connection.ops.sequence_reset_sql(no_style(), apps.get_models()):
            cursor.execute(statement)


@contextmanager
def doors() -> Iterator[Proxy]:
    """Yield a proxy whose address stays while what is behind it changes."""
    with proxy("http://127.0.0.1:9") as door:
        yield door


class World(Struct, frozen=True):
    """A scenario, when its clock starts, and the catalog that fits it at a URL."""

    scenario: Scenario
    start: datetime
    catalog: Callable[[str], str] = catalog


@contextmanager
def collecting(
    door: Proxy, script: Script = undisturbed, world: World | None = None
) -> Iterator[Collecting]:
    """Yield a portal that has collected nothing yet; what it writes is undone at the end."""
    with transaction.atomic():
        count_ids_anew()
        try:
            with installed(door, script, world) as portal:
                yield portal
        finally:
            transaction.set_rollback(True)


@contextmanager
def installed(
    door: Proxy, script: Script = undisturbed, world: World | None = None
) -> Iterator[Collecting]:
    """Yield a portal that has collected nothing yet, on the empty database of this process.

    Without a world it has the fault scenarios.
    """
    world = world or World(faults_once(), START)
    with serving(world.scenario, world.start.timestamp()) as served:
        door.target = served.url
        door.begin(script)
        load_catalog(world.catalog(door.url), "catalog.yaml", now=world.start, dry_run=False)
        entry = Cluster.objects.get().prometheus
        source = PrometheusSource(
            PrometheusApi(PrometheusConfig.from_catalog(entry), wait=lambda _: None)
        )
        try:
            yield Collecting(door, served.clock, source)
        finally:
            source.close()
