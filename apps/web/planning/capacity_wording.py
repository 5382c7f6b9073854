"""The capacity plan in words: what to do, why, and what a plan rests on."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from math import floor
from zoneinfo import ZoneInfo

from msgspec import Struct

from apps.planning.domain.capacity_cases import CapacityCase, CaseAction, room_of
from apps.planning.selectors import SourceGap, TierCapacityPlan
from apps.quotas.domain.keys import QuotaSource
from apps.quotas.selectors import tier_quotas
from apps.web.components.formats import (
    days_text,
    days_words,
    duration,
    gpus_text,
    gpus_words,
    money,
    percent,
)
from apps.web.planning.capacity_ceilings import gap_texts, groups_text

NOT_COMPUTED = "Not computed yet. A plan needs one whole day of data."
FEW_DAYS = "A forecast needs 21 days of data."


class CaseText(Struct, frozen=True):
    """An action as the page words it: what, why, and what it costs or saves in a month."""

    title: str
    text: str
    money: str = ""


def case_text(case: CapacityCase, plan: TierCapacityPlan) -> CaseText:
    """Return an action in words."""
    gpus, cost = gpus_words(case.gpus), plan.cost_of(case)
    costs = ""
    if cost is not None and plan.price is not None:
        word = "Costs" if cost >= 0 else "Saves"
        costs = f"{word} about {money(abs(cost), plan.price.currency)} a month."
    if case.action is CaseAction.BUY:
        return CaseText(f"Buy {gpus}", _reason_to_buy(case, plan), costs)
    if case.action is CaseAction.RETURN:
        return CaseText(f"Return {gpus}", _reason_to_return(plan), costs)
    if case.action is CaseAction.MOVE:
        return CaseText(
            f"Move {gpus} to {case.to_tier}",
            f"This tier can spare them, and {case.to_tier} has the same GPU model.",
        )
    if case.action is CaseAction.SHARE:
        unused = gpus_text(plan.outlook.unused)
        return CaseText(
            f"Share {gpus}",
            f"{unused} allocated GPUs are not active. Smaller requests or a shared tier can free "
            f"{gpus} in place of a purchase. {_reason_to_buy(case, plan)}",
        )
    return CaseText("Keep", "Capacity meets the forecast and the replayed demand.")


def _reason_to_buy(case: CapacityCase, plan: TierCapacityPlan) -> str:
    texts = []
    if case.before is not None and case.after is not None:
        more = gpus_words(round(case.after.gpus - case.before.gpus))
        texts.append(
            f"With {more} more, pending of {days_words(plan.outlook.replayed_days)} falls from "
            f"{gpus_text(case.before.unmet_gpu_hours)} to "
            f"{gpus_text(case.after.unmet_gpu_hours)} GPU-h, and p95 queue time from "
            f"{duration_text(case.before.p95_seconds)} to {duration_text(case.after.p95_seconds)}."
        )
    ahead = plan.outlook.ahead
    # Replayed demand may speak for more where the forecast does not: then it is not named.
    if ahead is not None and ahead[1] > plan.outlook.capacity_now:
        texts.append(
            f"The forecast is {gpus_words(ahead[1])}, the capacity "
            f"{gpus_text(plan.outlook.capacity_now)}."
        )
    return " ".join(texts)


def _reason_to_return(plan: TierCapacityPlan) -> str:
    ahead = plan.outlook.ahead
    high = gpus_words(ahead[2]) if ahead else "GPUs"
    return (
        f"The high end of the forecast is {high}, and the last "
        f"{days_words(plan.outlook.replayed_days)} had room without them."
    )


def duration_text(seconds: float | None) -> str:
    """Return a queue time; of no work there is no data."""
    return "no data" if seconds is None else duration(seconds)


def moves_here(own: TierCapacityPlan, plans: Iterable[TierCapacityPlan]) -> list[CaseText]:
    """Return what other tiers give to this one, in words."""
    return [
        CaseText(
            f"Move {gpus_words(case.gpus)} here from {case.tier}",
            f"{case.tier} can spare them, and has the same GPU model.",
        )
        for plan in plans
        for case in plan.cases
        if case.to_tier == own.outlook.tier
    ]


def ceilings_text(plan: TierCapacityPlan, now: datetime) -> list[str]:
    """Return what autoscalers and Kueue's quotas allow, and what a purchase would run into."""
    bought = [case for case in plan.cases if case.action is CaseAction.BUY]
    wanted = sum(case.gpus for case in bought)
    texts = []
    room = room_of(plan.pools)
    if room is not None:
        text = f"Node pools of Karpenter may add {gpus_words(floor(room))} within their limits."
        if wanted > room:
            names = ", ".join(pool.name for pool in plan.pools)
            text += f" For {gpus_words(wanted)} more, raise the limit of {names} first."
        texts.append(text)
    elif plan.pools:
        texts.append("A node pool of Karpenter has no limit of GPUs.")
    if of_groups := groups_text(plan.groups, bought):
        texts.append(of_groups)
    # Most clusters have no autoscaler, which the page of all tiers says.
    texts += gap_texts(one for one in plan.gaps if one.gap is not SourceGap.NO_DATA)
    quota = tier_quotas(now, plan.outlook.tier).get(QuotaSource.CLUSTER_QUEUE)
    if quota is not None:
        text = f"ClusterQueues that reach this tier have a nominal quota of {gpus_words(quota)}."
        if wanted and plan.outlook.capacity_now + wanted > quota:
            text += " Queued work gets no more until it is raised."
        texts.append(text)
    return texts


def interruptions_text(plan: TierCapacityPlan) -> str:
    """Return how often spot nodes vanished in use; empty without spot nodes."""
    seen = plan.outlook.spot_interruptions
    if seen is None:
        # Series show spot capacity, and not that a node vanished; plans of before know of none.
        return "interruptions: no data from the watch" if plan.outlook.spot_ratio else ""
    if not seen.nodes:
        return f"no node vanished in {days_words(seen.days)}"
    monthly = gpus_text(seen.per_month)
    return f"{monthly} interruptions a month, {seen.in_use} of {seen.nodes} vanished nodes in use"


def skill_text(plan: TierCapacityPlan) -> str:
    """Return how forecasts of past days came out."""
    found = plan.outlook.forecast
    if found is None:
        return FEW_DAYS
    skill = found.skill
    if skill is None:
        return "Too few days are known to hold a forecast against what came."
    return (
        f"Forecasts of past days, up to {days_words(skill.ahead)} ahead, erred by "
        f"{gpus_words(skill.error)} on average. The weekday of the week before erred by "
        f"{gpus_text(skill.naive_error)}. {percent(skill.coverage)} of days were within the range."
    )


def bookings_text(plan: TierCapacityPlan) -> str:
    """Return what bookings to come add to the forecast."""
    one = plan.outlook
    if one.forecast is None:
        return "Shown with a forecast."
    if not one.booked_peak:
        return f"None begins until {plan.forecast_until}."
    over = one.booked_peak > one.capacity_now
    return (
        f"With bookings to come, the highest daily average is {gpus_words(one.booked_peak)}, "
        f"{'above' if over else 'within'} the capacity of {gpus_text(one.capacity_now)}. Bookings "
        "count as fully used. They end, so no GPUs are bought for them, and none that they need "
        "are returned."
    )


def replayed_text(plan: TierCapacityPlan, zone: ZoneInfo) -> str:
    """Return which days were replayed, or why none were."""
    one = plan.outlook
    if not one.replayed_days:
        return one.not_replayed or NOT_COMPUTED
    first = plan.through - timedelta(days=one.replayed_days - 1)
    days = days_text(first, plan.through, zone)
    return f"{days_words(one.replayed_days)} replayed for each capacity: {days}."
