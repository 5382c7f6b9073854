"""Tiers: what they match, and that each can match something."""

from collections.abc import Sequence

from apps.clusters.domain.tiers import BUILTIN_TIERS, GpuSharing, TierRule, unreachable
from apps.operations.domain.checks.names import check_free, check_known, check_once, written
from apps.operations.domain.schema import Catalog, Tier
from apps.operations.domain.source_positions import Path, Problems

_DECIDE = ("name", "sharing", "resources", "device_classes", "node_selector")


def check(catalog: Catalog, problems: Problems) -> None:
    """Check every tier, then which can never match."""
    tiers = [(("tiers", i), t) for i, t in enumerate(catalog.tiers) if t]
    check_once(
        (((*path, "name"), tier.name) for path, tier in tiers),
        problems,
        what="a second tier of that name",
    )
    teams = written(problems.root, "teams")
    for path, tier in tiers:
        check_free((*path, "name"), tier.name, BUILTIN_TIERS, problems, what="tier")
        _check_matching(tier, path, problems)
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
            f"takes everything that {name} asks for; put {name} before it or give {earlier} a "
            "narrower node_selector",
        )
