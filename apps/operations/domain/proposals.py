"""Proposals to change what the catalog says of a team: an entitlement, its namespaces, a budget.

A proposal holds texts, as a person wrote them and as the audit keeps them; the catalog's own rules
decide whether they make sense.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from apps.operations.domain.schema import Budget, Catalog, Period, Team

ProposedValue = Mapping[str, Any]


class ProposalKind(StrEnum):
    """What of a team is to change."""

    ENTITLEMENT = "entitlement"
    NAMESPACES = "namespaces"
    BUDGET = "budget"


class ProposalState(StrEnum):
    SUBMITTED = "submitted"
    APPROVED = "approved"
    REJECTED = "rejected"
    CANCELED = "canceled"


class ProposalRefused(Exception):
    """The proposal cannot be made or carried out; the text says why and what to do."""


class ProposalTarget(Struct, frozen=True):
    """What is to change: `subject` is the tier of an entitlement, or a budget's period and unit
    as `month gpu_hours`; empty for namespaces.
    """

    kind: ProposalKind
    team: str
    subject: str = ""

    def __str__(self) -> str:
        match self.kind:
            case ProposalKind.ENTITLEMENT:
                return f"entitlement of {self.team} in {self.subject}"
            case ProposalKind.NAMESPACES:
                return f"namespaces of {self.team}"
            case ProposalKind.BUDGET:
                period, unit = budget_parts(self.subject)
                words = "money" if unit == "money" else "GPU-hours"
                return f"budget of {self.team} per {period} in {words}"


class ProposedChange(Struct, frozen=True):
    """What is to change, from what to what; empty values say that the catalog says nothing."""

    target: ProposalTarget
    before: ProposedValue
    after: ProposedValue


def budget_parts(subject: str) -> tuple[str, str]:
    """Return period and unit (`gpu_hours` or `money`). Raises ProposalRefused for others."""
    period, _, unit = subject.partition(" ")
    if period not in list(Period) or unit not in {"gpu_hours", "money"}:
        raise ProposalRefused(
            # Cut, as the text may come from an address that somebody wrote by hand.
            f"A budget is for a {', '.join(Period)}, in gpu_hours or money, not “{subject[:40]}”."
        )
    return period, unit


def value_in(catalog: Catalog, target: ProposalTarget) -> ProposedValue:
    """Return what the catalog says of the target; an empty mapping where it says nothing.

    Raises ProposalRefused where there is no such team.
    """
    team = _team(catalog, target.team)
    match target.kind:
        case ProposalKind.ENTITLEMENT:
            gpus = team.entitlements.get(target.subject)
            weight = team.weights.get(target.subject)
            found = {"gpus": gpus, "weight": weight}
            return {key: _number(value) for key, value in found.items() if value is not None}
        case ProposalKind.NAMESPACES:
            # Empty as of the other kinds: the catalog says nothing.
            return {"patterns": list(team.namespaces)} if team.namespaces else {}
        case ProposalKind.BUDGET:
            budget = _budget(team, target.subject)
            if budget is None:
                return {}
            if budget.money is not None:
                return {"amount": budget.money, "currency": budget.currency or ""}
            return {"amount": _number(budget.gpu_hours or 0.0)}


def with_value(catalog: Catalog, target: ProposalTarget, value: ProposedValue) -> Catalog:
    """Return the catalog with the target as proposed; an empty value takes it out.

    Raises ProposalRefused for amounts that are no numbers, and for a team with a plan: a catalog
    says of a team what holds from one day on, so the plan would take the change along to its day.
    """
    team = _team(catalog, target.team)
    if team.valid_from is not None:
        raise ProposalRefused(
            f"The catalog plans a change of {target.team} for {team.valid_from}. Change the plan "
            "in the catalog's file, or propose this after that day."
        )
    changed = msgspec.structs.replace(team, **_fields(team, target, value))
    teams = tuple(changed if one is team else one for one in catalog.teams)
    return msgspec.structs.replace(catalog, teams=teams)


def _fields(team: Team, target: ProposalTarget, value: ProposedValue) -> dict[str, Any]:
    match target.kind:
        case ProposalKind.ENTITLEMENT:
            return {
                name: _entry(current, target.subject, value.get(key))
                for name, key, current in (
                    ("entitlements", "gpus", team.entitlements),
                    ("weights", "weight", team.weights),
                )
            }
        case ProposalKind.NAMESPACES:
            return {"namespaces": tuple(value.get("patterns", ()))}
        case ProposalKind.BUDGET:
            return {"budgets": _budgets(team, target.subject, value)}


def _entry(current: Mapping[str, float], key: str, text: str | None) -> dict[str, float]:
    others = {name: amount for name, amount in current.items() if name != key}
    return others if text is None else others | {key: _amount(text)}


def _budgets(team: Team, subject: str, value: ProposedValue) -> tuple[Budget, ...]:
    period, unit = budget_parts(subject)
    others = tuple(budget for budget in team.budgets if budget is not _budget(team, subject))
    if not value:
        return others
    if unit == "money":
        made = Budget(period=Period(period), money=value["amount"], currency=value["currency"])
    else:
        made = Budget(period=Period(period), gpu_hours=_amount(value["amount"]))
    return (*others, made)


def _budget(team: Team, subject: str) -> Budget | None:
    period, unit = budget_parts(subject)
    return next(
        (one for one in team.budgets if one.period == period and one.unit == unit),
        None,
    )


def _team(catalog: Catalog, name: str) -> Team:
    for team in catalog.teams:
        if team.name == name:
            return team
    raise ProposalRefused(f"The catalog has no team “{name[:120]}”.")


def _amount(text: str) -> float:
    try:
        # `nan` and `inf` pass here; the catalog's own rules refuse them when the text is read
        # back.
        return float(text)
    except ValueError:
        raise ProposalRefused(f"“{text[:40]}” is no number.") from None


def _number(value: float) -> str:
    """Write a number so that `float` reads the same one back, and whole ones without a point."""
    return f"{value:.0f}" if value.is_integer() else repr(value)
