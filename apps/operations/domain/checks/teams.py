"""Teams: names, namespace claims, entitlements and budgets."""

from apps.clusters.domain.tiers import UNASSIGNED
from apps.operations.domain.checks.names import check_free, check_known, check_once, written
from apps.operations.domain.schema import Budget, Catalog, Team
from apps.operations.domain.source_positions import Path, Problems


def check(catalog: Catalog, problems: Problems) -> None:
    """Check every team, then what two teams cannot both have."""
    teams = [(("teams", i), t) for i, t in enumerate(catalog.teams) if t]
    check_once(
        (((*path, "name"), team.name) for path, team in teams),
        problems,
        what="a second team of that name",
    )
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
