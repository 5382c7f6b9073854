"""What must hold in a catalog beyond the type of each value; every check notes all it finds."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

from apps.clusters.domain.host_lists import hosts_of
from apps.clusters.domain.tiers import (
    BUILTIN_TIERS,
    UNASSIGNED,
    GpuSharing,
    TierRule,
    model_key,
    unreachable,
)
from apps.costs.domain.carbon import MOST_G_PER_KWH
from apps.costs.domain.prices import PriceEntry, doubt
from apps.operations.domain.prometheus_checks import check_prometheus, check_url
from apps.operations.domain.schema import (
    Account,
    Budget,
    Catalog,
    Cluster,
    Price,
    ServingObjective,
    SiteEnergy,
    Slurm,
    Team,
    Tier,
    per_gpu_hour,
    whole_seconds,
)
from apps.operations.domain.source_positions import (
    BEGINNING,
    Path,
    Problems,
    SourceNode,
    child,
    instant,
    known_zones,
    line_of,
    near,
    shown,
    shown_path,
    zone_problem,
)

_MOST_NAMES_SHOWN = 12


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


def _check_names(
    named: Iterable[tuple[Path, Cluster | Tier | Team]], problems: Problems, *, what: str
) -> None:
    """Note every name that comes again."""
    names = (((*path, "name"), one.name) for path, one in named)
    check_once(names, problems, what=f"a second {what} of that name")


def check_known(
    path: Path, name: str, known: Sequence[str], problems: Problems, *, what: str
) -> None:
    """Note a name that is not among the known ones."""
    if name in known:
        return
    problems.add(path, f"no {what} of that name{near(name, known)} {_listed_names(known, what)}")


def check_free(
    path: Path, name: str, reserved: Iterable[str], problems: Problems, *, what: str
) -> None:
    """Note a name that the portal keeps for itself."""
    if name in reserved:
        problems.add(path, f"{shown(name)} is a {what} of the portal itself; choose another name")


def _listed_names(known: Sequence[str], what: str) -> str:
    if not known:
        return f"the catalog has no {what}s"
    more = f" and {len(known) - _MOST_NAMES_SHOWN} more" if len(known) > _MOST_NAMES_SHOWN else ""
    return f"{what}s are {', '.join(known[:_MOST_NAMES_SHOWN])}{more}"


_WAYS = ("kubeconfig", "in_cluster", "api_server")
# What else belongs to one way of connecting, and to which.
_BELONGS = {"context": "kubeconfig", "bearer_token_env": "api_server", "ca_file": "api_server"}


def _check_clusters(catalog: Catalog, problems: Problems) -> None:
    """Check every cluster."""
    # None is what did not fit its type, which is noted already.
    clusters = [(("clusters", i), c) for i, c in enumerate(catalog.clusters) if c]
    _check_names(clusters, problems, what="cluster")
    for path, cluster in clusters:
        _check_cluster(cluster, path, problems)


def _check_cluster(cluster: Cluster, path: Path, problems: Problems) -> None:
    if cluster.slurm is not None:
        _check_slurm(cluster, cluster.slurm, path, problems)
    elif cluster.prometheus is None and problems.clean((*path, "prometheus")):
        problems.add(path, "has neither prometheus nor slurm; a cluster is known by one of the two")
    if cluster.prometheus is not None:
        check_prometheus(cluster.prometheus, (*path, "prometheus"), problems)
    if cluster.energy is not None:
        _check_energy(cluster.energy, (*path, "energy"), problems)
    if cluster.kubernetes is not None:
        at = (*path, "kubernetes")
        _check_account(cluster.kubernetes, at, problems)
        if cluster.kubernetes.writer is not None:
            _check_account(cluster.kubernetes.writer, (*at, "writer"), problems)
            _check_apart(cluster.kubernetes, cluster.kubernetes.writer, at, problems)


def _check_slurm(cluster: Cluster, slurm: Slurm, path: Path, problems: Problems) -> None:
    for other in ("prometheus", "kubernetes"):
        if getattr(cluster, other) is not None:
            problems.add(
                (*path, other), "stands beside slurm; a cluster known by its job log has none"
            )
    if slurm.time_zone not in known_zones():
        problems.add((*path, "slurm", "time_zone"), "no time zone of that name")
    known: set[str] = set()
    for number, group in enumerate(slurm.nodes):
        at = (*path, "slurm", "nodes", number, "names")
        try:
            hosts = hosts_of(group.names)
        except ValueError as error:
            problems.add(at, f"cannot be read: {error}")
            continue
        if again := sorted(known.intersection(hosts)):
            problems.add(at, f"names {again[0]} again; a node stands once")
        known.update(hosts)


def _check_energy(energy: SiteEnergy, path: Path, problems: Problems) -> None:
    # What did not fit is None or the default here, and would be told of twice.
    if not problems.clean(*((*path, field) for field in ("pue", "carbon_g_per_kwh"))):
        return
    if Decimal(energy.pue) < 1:
        problems.add((*path, "pue"), f"must be 1 or more, not {energy.pue}")
    if (energy.carbon_g_per_kwh is None) == (energy.carbon_file is None):
        have = "neither" if energy.carbon_file is None else "both"
        problems.add(path, f"has {have} of carbon_g_per_kwh and carbon_file; exactly one is needed")
    if Decimal(energy.carbon_g_per_kwh or "0") > MOST_G_PER_KWH:
        problems.add((*path, "carbon_g_per_kwh"), f"is more than {MOST_G_PER_KWH:,} g/kWh")
    if energy.carbon_file is not None and energy.valid_from is None:
        problems.add(
            (*path, "carbon_file"),
            "needs valid_from: hours from then on have the factors of the file",
        )


def _check_account(account: Account, path: Path, problems: Problems) -> None:
    check_url(account.api_server, (*path, "api_server"), problems)
    if not problems.clean(*((*path, way) for way in _WAYS)):
        return
    ways = [way for way in _WAYS if getattr(account, way)]
    if len(ways) != 1:
        problems.add(
            path,
            f"has {' and '.join(ways) or 'none of them'}; exactly one of kubeconfig, "
            "in_cluster: true and api_server is needed (no kubernetes key at all: metrics only)",
        )
        return
    # Only of a single way can be told which keys belong to another one.
    for key, way in _BELONGS.items():
        if getattr(account, key) is not None and way != ways[0]:
            problems.add((*path, key), f"goes with {way}, not with {ways[0]}")


def _check_apart(reader: Account, writer: Account, path: Path, problems: Problems) -> None:
    """Refuse one account for both: what watches all day long must not be able to write.

    A server without accounts, such as a simulated one, has none to tell apart. Inside a cluster
    the two are told apart by their tokens: the writer's is mounted in a folder of its own.
    """
    token = writer.bearer_token_env
    # Two contexts of one file may be two accounts, so both are compared.
    same = (writer.kubeconfig and _file(writer) == _file(reader)) or (
        token and (token, writer.api_server) == (reader.bearer_token_env, reader.api_server)
    )
    if same:
        problems.add(
            (*path, "writer"),
            "is the account that watches the cluster; quotas are changed under one of its own "
            "(deploy/rbac-quota-writer.yaml)",
        )


def _file(account: Account) -> tuple[str | None, str | None]:
    return account.kubeconfig, account.context


_UTC = ZoneInfo("UTC")
_DATED_SECTIONS = ("tiers", "teams", "prices", "serving_objectives")


def _check_report(catalog: Catalog, problems: Problems, *, now: datetime) -> ZoneInfo:
    """Check the time zone, then the dates; return the zone, UTC in place of a wrong one."""
    zone = _checked_zone(catalog, problems, now)
    # Also with a wrong zone, for one run is to name all that is wrong.
    for path, text in _dates(catalog):
        try:
            instant(text, zone)
        except ValueError as error:
            problems.add(path, str(error))
    _check_exchange_rates(catalog, problems)
    return zone


def _check_exchange_rates(catalog: Catalog, problems: Problems) -> None:
    """Check that each rate is of another currency, above 0 and the only one of its month."""
    own = catalog.report.currency
    rates = [
        (("report", "exchange_rates", index), one)
        for index, one in enumerate(catalog.report.exchange_rates or ())
        if one is not None
    ]
    check_once(
        (((*path, "currency"), (one.month, one.currency)) for path, one in rates),
        problems,
        what="a second rate of that currency and month",
    )
    for path, one in rates:
        if one.currency is not None and one.currency == own:
            problems.add((*path, "currency"), f"{own} is the report's currency: it has no rate")
        if one.rate is not None and not Decimal(one.rate):
            problems.add((*path, "rate"), "a rate is above 0")


def _checked_zone(catalog: Catalog, problems: Problems, now: datetime) -> ZoneInfo:
    name = catalog.report.time_zone
    wrong = zone_problem(name, now)
    if wrong is None:
        return ZoneInfo(name)
    close = near(name, sorted(known_zones())) if name not in known_zones() else ""
    problems.add(("report", "time_zone"), wrong + close.removesuffix(";"))
    return _UTC


def _dates(catalog: Catalog) -> Iterator[tuple[Path, str]]:
    for section in _DATED_SECTIONS:
        for index, item in enumerate(getattr(catalog, section)):
            if item is not None and item.valid_from is not None:
                yield (section, index, "valid_from"), item.valid_from
    for index, cluster in enumerate(catalog.clusters):
        energy = None if cluster is None else cluster.energy
        if energy is not None and energy.valid_from is not None:
            yield ("clusters", index, "energy", "valid_from"), energy.valid_from


_DECIDE = ("name", "sharing", "resources", "device_classes", "node_selector")


def _check_tiers(catalog: Catalog, problems: Problems) -> None:
    """Check every tier, then which can never match."""
    tiers = [(("tiers", i), t) for i, t in enumerate(catalog.tiers) if t]
    _check_names(tiers, problems, what="tier")
    # As the text has them: a team with some other fault is known by its name all the same.
    teams = written(problems.root, "teams")
    for path, tier in tiers:
        check_free((*path, "name"), tier.name, BUILTIN_TIERS, problems, what="tier")
        _check_matching(tier, path, problems)
        _check_queue_time(tier, (*path, "queue_time", "p95"), problems)
        for index, team in enumerate(tier.allowed_teams):
            if team is not None:
                check_known((*path, "allowed_teams", index), team, teams, problems, what="team")
    _check_reachable(tiers, problems)


def _check_matching(tier: Tier, path: Path, problems: Problems) -> None:
    for field in ("resources", "device_classes", "allowed_teams"):
        entries = enumerate(getattr(tier, field))
        check_once(
            (((*path, field, index), entry) for index, entry in entries),
            problems,
            what="given twice",
        )
    if not problems.clean((*path, "resources"), (*path, "device_classes"), (*path, "sharing")):
        return
    if bool(tier.resources) == bool(tier.device_classes):
        have = "both" if tier.resources else "neither"
        problems.add(path, f"has {have} of resources and device_classes; exactly one is needed")
    elif tier.device_classes and tier.sharing != GpuSharing.DRA:
        problems.add(
            (*path, "device_classes"), f"are for sharing: dra, not for {tier.sharing.value}"
        )


def _check_queue_time(tier: Tier, path: Path, problems: Problems) -> None:
    own = tier.queue_time
    if own is None or own.p95 is None or own.over is None:
        return
    if whole_seconds(own.p95) >= whole_seconds(own.over):
        problems.add(path, f"{own.p95} is not shorter than over, {own.over}")


def _check_reachable(tiers: Sequence[tuple[Path, Tier]], problems: Problems) -> None:
    """Note tiers that come too late. Only sound tiers are compared: names tell them apart."""
    sound = {
        tier.name: (path, tier)
        for path, tier in tiers
        if problems.clean(*((*path, field) for field in _DECIDE))
    }
    rules = [
        TierRule(t.name, t.sharing, t.resources, t.device_classes, t.node_selector)
        for _, t in sound.values()
    ]
    for name, earlier in unreachable(rules):
        problems.add(
            sound[name][0],
            f"can never match: the first tier that matches wins, and the earlier tier {earlier} "
            f"takes every pod that {name} would match; put {name} before it or give {earlier} a "
            "narrower node_selector",
        )


def _check_teams(catalog: Catalog, problems: Problems) -> None:
    """Check every team, then what two teams cannot both have."""
    teams = [(("teams", i), t) for i, t in enumerate(catalog.teams) if t]
    _check_names(teams, problems, what="team")
    check_once(
        (
            ((*path, "namespaces", index), pattern)
            for path, team in teams
            for index, pattern in enumerate(team.namespaces)
        ),
        problems,
        what="claimed twice",
    )
    tiers = written(problems.root, "tiers")
    for path, team in teams:
        check_free((*path, "name"), team.name, (UNASSIGNED,), problems, what="team")
        _check_team(team, path, tiers, problems)


def _check_team(team: Team, path: Path, tiers: list[str], problems: Problems) -> None:
    check_once(
        (((*path, "leads", index), lead) for index, lead in enumerate(team.leads)),
        problems,
        what="named twice",
    )
    for field in ("entitlements", "weights"):
        for tier in getattr(team, field):
            check_known((*path, field, tier), tier, tiers, problems, what="tier")
    budgets = [((*path, "budgets", i), b) for i, b in enumerate(team.budgets) if b]
    for budget_path, budget in budgets:
        _check_budget(budget, budget_path, problems)
    check_once(
        (
            (budget_path, (budget.period, budget.unit))
            for budget_path, budget in budgets
            if problems.clean(budget_path)
        ),
        problems,
        what="a second budget of the same period and unit",
    )


def _check_budget(budget: Budget, path: Path, problems: Problems) -> None:
    if not problems.clean((*path, "gpu_hours"), (*path, "money")):
        return
    if (budget.gpu_hours is None) == (budget.money is None):
        have = "neither" if budget.money is None else "both"
        problems.add(path, f"has {have} of gpu_hours and money; exactly one is needed")
    elif not problems.clean((*path, "currency")):
        return
    elif budget.money is not None and budget.currency is None:
        problems.add(path, "has money without a currency; add one such as currency: USD")
    elif budget.money is None and budget.currency is not None:
        problems.add((*path, "currency"), "goes with money, not with gpu_hours")


# What has to be sound before prices are compared, and below, before an amount is judged.
_SEPARATE = ("gpu_model", "capacity_type", "cluster", "tier", "valid_from")
_AMOUNT = ("gpu_model", "capacity_type", "per_gpu_hour", "currency", "discount", "owned", "energy")


def _check_prices(catalog: Catalog, problems: Problems, zone: ZoneInfo) -> None:
    """Check every price, then those that would hold at the same time."""
    prices = [(("prices", i), p) for i, p in enumerate(catalog.prices) if p]
    clusters, tiers = written(problems.root, "clusters"), written(problems.root, "tiers")
    for path, price in prices:
        if price.cluster is not None:
            check_known((*path, "cluster"), price.cluster, clusters, problems, what="cluster")
        if price.tier is not None:
            check_known((*path, "tier"), price.tier, tiers, problems, what="tier")
        _check_price(price, path, problems)
    sound = [
        (path, price)
        for path, price in prices
        if problems.clean(*((*path, field) for field in _SEPARATE))
    ]
    check_once(
        ((path, (*separate(price), _price_since(price, zone))) for path, price in sound),
        problems,
        what="a second price of the same GPU model, capacity type, cluster, tier and valid_from",
    )
    _check_dated(sound, problems)


def separate(price: Price) -> tuple[str, str, str, str]:
    """Return what keeps one price apart from another at the same time."""
    place = (price.cluster or "", price.tier or "")
    return (*place, model_key(price.gpu_model), price.capacity_type.value)


def _check_price(price: Price, path: Path, problems: Problems) -> None:
    """Note a price that is given twice or not at all, or that looks like a typing error."""
    if not problems.clean(*((*path, field) for field in _AMOUNT)):
        return
    if (price.per_gpu_hour is None) == (price.owned is None):
        have = "neither" if price.owned is None else "both"
        problems.add(path, f"has {have} of per_gpu_hour and owned; exactly one is needed")
        return
    if price.energy is not None and price.owned is not None:
        problems.add((*path, "energy"), "goes with per_gpu_hour; with owned, per_kwh stands in it")
        return
    if price.example and (price.confirmed_by or price.confirmed_on):
        problems.add((*path, "example"), "a price that somebody confirmed is no example")
        return
    if price.confirmed_on and not price.confirmed_by:
        problems.add((*path, "confirmed_on"), "needs confirmed_by: who confirmed the price")
        return
    place = (*path, "per_gpu_hour" if price.owned is None else "owned")
    try:
        reason = None if price.confirmed else price_doubt(price)
        _check_pue(price)
        # The pattern lets 2026-02-30 pass: only the calendar tells.
        _ = price.confirmed_on and date.fromisoformat(price.confirmed_on)
    except ValueError as error:
        problems.add(place, str(error))
        return
    if reason is not None:
        problems.add(place, f"{reason} (To confirm it, add confirmed: true)")


def price_doubt(price: Price) -> str | None:
    """Return what looks like a typing error in a price; None where nothing does."""
    return doubt(_price_entry(price))


def _price_entry(price: Price) -> PriceEntry:
    return PriceEntry(
        gpu_model=price.gpu_model,
        capacity_type=price.capacity_type.value,
        per_gpu_hour=per_gpu_hour(price),
        currency=price.currency,
        # Any day will do: a doubt is about the amount alone.
        valid_from=BEGINNING,
        discount=Decimal(price.discount),
    )


def _check_pue(price: Price) -> None:
    for part in (price.owned, price.energy):
        if part is not None and Decimal(part.pue) < 1:
            raise ValueError(f"pue must be 1 or more, not {part.pue}")


def _check_dated(prices: Sequence[tuple[Path, Price]], problems: Problems) -> None:
    """Note an undated price beside dated ones: which of them holds now could not be said."""
    dated = {separate(price) for _, price in prices if price.valid_from is not None}
    for path, price in prices:
        if price.valid_from is None and separate(price) in dated:
            problems.add(
                path,
                "needs a valid_from: other prices of the same GPU model, capacity type, cluster "
                "and tier have one",
            )


def _price_since(price: Price, zone: ZoneInfo) -> datetime | None:
    return None if price.valid_from is None else instant(price.valid_from, zone)


def _check_serving_objectives(catalog: Catalog, problems: Problems) -> None:
    """Note unknown clusters, entries of the same match, and entries that are never reached."""
    clusters = written(problems.root, "clusters")
    entries = [
        (("serving_objectives", i), one) for i, one in enumerate(catalog.serving_objectives) if one
    ]
    for path, one in entries:
        if one.cluster is not None:
            check_known((*path, "cluster"), one.cluster, clusters, problems, what="cluster")
    matches = ("cluster", "namespace", "workload", "model")
    # A match that does not fit its type is None here, as if it were left out.
    sound = [
        (path, one)
        for path, one in entries
        if problems.clean(*((*path, field) for field in matches))
    ]
    check_once(
        ((path, one.match) for path, one in sound),
        problems,
        what="a second objective of the same cluster, namespace, workload and model",
    )
    for place, (path, one) in enumerate(sound):
        before = [(at, earlier) for at, earlier in sound[:place] if _always_beats(earlier, one)]
        if before:
            line = line_of(problems.root, before[0][0])
            problems.add(path, f"is never used: the objective on line {line} fits all that it fits")


def _always_beats(earlier: ServingObjective, later: ServingObjective) -> bool:
    # One of a later day leaves the time before it, and the same match is told of as such.
    if earlier.valid_from is not None or earlier.match == later.match:
        return False
    return all(own in (None, other) for own, other in zip(earlier.match, later.match, strict=True))


def check(catalog: Catalog, problems: Problems, *, now: datetime) -> None:
    """Add to `problems` whatever forbids loading the catalog.

    Values that did not fit their type are None here (see `shape`) and are left alone.
    """
    # First, for prices are told apart by days of this zone.
    zone = _check_report(catalog, problems, now=now)
    _check_clusters(catalog, problems)
    _check_tiers(catalog, problems)
    _check_teams(catalog, problems)
    _check_prices(catalog, problems, zone)
    _check_serving_objectives(catalog, problems)
