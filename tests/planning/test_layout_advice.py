"""Layouts: what nodes could offer, the program against every choice, and the replayed advice."""

import ctypes
from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement, product
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.accounts.domain.structs import replace
from apps.clusters.domain.tiers import GpuSharing, TierRule
from apps.planning.domain.cluster_replay.backtest import WorkTimes
from apps.planning.domain.cluster_replay.inputs import (
    ClosedSpan,
    MissingUnits,
    Packing,
    RecordedWork,
    ReplayCluster,
    ReplayDevice,
    ReplayNode,
)
from apps.planning.domain.layouts.advice import HeldGpus, LayoutAdvice, held_gpus, layout_advice
from apps.planning.domain.layouts.figures import DemandWindow, layout_figures, tier_demand
from apps.planning.domain.layouts.files import mig_parted_file, node_labels, plugin_file
from apps.planning.domain.layouts.options import (
    GpuLayout,
    LayoutChoices,
    LeftAsIs,
    NodeGroup,
    changed_node,
    gpu_count,
    layout_choices,
    recut_node,
)
from apps.planning.domain.layouts.program import TierDemand, choose_layouts
from apps.planning.domain.layouts.wording import left_text
from apps.planning.domain.recorded.constraints import TAINTS

HOUR = 3600.0
DAY = 24 * HOUR
A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
MIG = {**A100, "nvidia.com/mig.strategy": "mixed", "nvidia.com/gpu.count": "2"}
A30 = {"nvidia.com/gpu.product": "NVIDIA-A30-MIG-2g.12gb", "nvidia.com/gpu.count": "4"}
L4 = {"nvidia.com/gpu.product": "NVIDIA-L4-SHARED", "nvidia.com/gpu.replicas": "4"}
GPU = ("nvidia.com/gpu",)
RULES = (
    TierRule("whole", GpuSharing.EXCLUSIVE, GPU, (), A100),
    TierRule("half", GpuSharing.MIG, ("nvidia.com/mig-3g.40gb",)),
    TierRule("seventh", GpuSharing.MIG, ("nvidia.com/mig-1g.10gb",)),
    TierRule("a30", GpuSharing.MIG, GPU, (), {"nvidia.com/gpu.product": "NVIDIA-A30-MIG-2g.12gb"}),
    TierRule(
        "turn", GpuSharing.TIME_SLICED, GPU, (), {"nvidia.com/gpu.product": "NVIDIA-L4-SHARED"}
    ),
    TierRule("claimed", GpuSharing.DRA, (), ("gpu.nvidia.com",)),
)
HALVES = tuple(ReplayDevice("half", 1.0, 3 / 7, n, "3g.40gb") for n in range(4))
WHOLE = tuple(ReplayDevice("whole", gpu=n) for n in range(2))
TURNS = tuple(ReplayDevice("turn", 4.0, 0.25, n) for n in range(2))


def node(
    name: str, devices: Sequence[ReplayDevice], labels: dict[str, str], **more: Any
) -> ReplayNode:
    return ReplayNode(name, tuple(devices), {TAINTS: "", **labels}, **more)


def choices(*nodes: ReplayNode, activity: dict[str, float] | None = None) -> LayoutChoices:
    return layout_choices(nodes, RULES, activity or {}, end=DAY)


def texts(found: LayoutChoices) -> list[list[str]]:
    return [[option.text for option in group.options] for group in found.groups]


# ---------------------------------------------------------------- options


def test_mixed_nodes_may_have_every_full_layout_of_tiers_and_whole_gpus() -> None:
    found = choices(node("m1", HALVES, MIG), node("m2", HALVES, MIG), node("w", WHOLE, A100))
    cuts = ["7 × 1g.10gb", "2 × 3g.40gb", "4 × 1g.10gb + 1 × 3g.40gb", "whole GPU"]
    assert texts(found) == [cuts, cuts]
    mig, whole = found.groups
    assert (mig.nodes, mig.gpus, mig.text, mig.units) == (
        ("m1", "m2"),
        2,
        "4 × 3g.40gb",
        {"half": 4},
    )
    assert (whole.gpus, whole.text, whole.has_mig) == (2, "2 × whole GPU", False)
    assert not any(option.whole_node for option in mig.options)


def test_a_node_of_the_strategy_single_has_one_profile() -> None:
    halves = [ReplayDevice("a30", 1.0, 0.5, n, "2g.12gb") for n in range(8)]
    rules = (*RULES, TierRule("quarter", GpuSharing.MIG, GPU, (), {
        "nvidia.com/gpu.product": "NVIDIA-A30-MIG-1g.6gb"}))  # fmt: skip
    found = layout_choices([node("a", halves, A30)], rules, {}, end=DAY)
    (group,) = found.groups
    assert group.gpus == 4
    assert [option.text for option in group.options] == ["4 × 1g.6gb", "2 × 2g.12gb"]
    assert all(option.whole_node and option.strategy == "single" for option in group.options)


def test_a_node_is_cut_anew_where_it_is_as_it_was() -> None:
    sevenths = {"1g.10gb": 7}
    cut = recut_node(node("m", HALVES, MIG), {"3g.40gb": 2}, sevenths, RULES)
    assert cut is not None
    assert [(one.tier, one.gpu) for one in cut.devices] == [
        ("seventh", gpu) for gpu in (0, 1) for _ in range(7)
    ]
    # A device of no tier is offered to no team.
    untold = recut_node(node("m", HALVES, MIG), {"3g.40gb": 2}, {"4g.40gb": 1}, RULES)
    assert untold is not None
    assert untold.devices == ()
    assert recut_node(node("m", HALVES, MIG), {"3g.40gb": 1}, sevenths, RULES) is None
    single = {**MIG, "nvidia.com/mig.strategy": "single"}
    assert recut_node(node("m", HALVES, single), {"3g.40gb": 2}, sevenths, RULES) is None
    lacking = node("m", HALVES, MIG, missing=(MissingUnits(0, HOUR, "half", 1),))
    assert recut_node(lacking, {"3g.40gb": 2}, sevenths, RULES) is None


@pytest.mark.parametrize(
    ("labels", "activity", "replicas"),
    [
        ({}, 0.2, [4, 8]),
        ({}, 0.5, [4, 6]),
        ({}, 0.9, []),
        ({}, None, []),
        ({"nvidia.com/gpu.sharing-strategy": "mps"}, 0.1, []),
    ],
)
def test_replicas_grow_as_far_as_measured_activity_allows(
    labels: dict[str, str], activity: float | None, replicas: list[int]
) -> None:
    own = {} if activity is None else {"turn": activity}
    found = choices(node("l", TURNS, {**L4, **labels}), activity=own)
    assert [one.replicas for group in found.groups for one in group.options] == replicas
    assert found.left == ({} if replicas else {LeftAsIs.NO_CHOICE: 1})


def test_replicas_that_are_of_no_tier_are_no_choice() -> None:
    of_four = {"nvidia.com/gpu.replicas": "4"}
    rules = (TierRule("turn", GpuSharing.TIME_SLICED, GPU, (), of_four),)
    found = layout_choices([node("l", TURNS, L4)], rules, {"turn": 0.1}, end=DAY)
    assert found.left == {LeftAsIs.NO_CHOICE: 1}


def test_renamed_replicas_keep_their_resource_and_may_become_whole_gpus() -> None:
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-L4",
        "nvidia.com/gpu.sharing-strategy": "time-slicing",
    }
    rules = (
        TierRule("turn", GpuSharing.TIME_SLICED, ("nvidia.com/gpu.shared",)),
        TierRule("l4", GpuSharing.EXCLUSIVE, GPU),
    )
    found = layout_choices([node("l", TURNS, labels)], rules, {}, end=DAY)
    (group,) = found.groups
    assert [(one.text, one.renamed, one.units) for one in group.options] == [
        ("4 replicas", True, (("turn", 4.0),)),
        ("whole GPU", False, (("l4", 1.0),)),
    ]


def test_what_cannot_be_changed_stays_with_its_reason() -> None:
    claimed = (ReplayDevice("claimed"),)
    both = (*TURNS, *HALVES)
    found = choices(
        node("claims", claimed, A100),
        node("closed", WHOLE, A100, closed=(ClosedSpan(HOUR, DAY),)),
        node("broken", WHOLE, A100, missing=(MissingUnits(0, HOUR, "whole", 1),)),
        node("apps", WHOLE, {**A100, TAINTS: "dedicated=apps,nvidia.com/gpu=present"}),
        node("t4", WHOLE, {"nvidia.com/gpu.product": "Tesla-T4"}),
        node("unlabeled", WHOLE, {}),
        node("sliced", both, MIG),
        node("open", WHOLE, {**A100, TAINTS: "nvidia.com/gpu=present"}),
    )
    assert found.left == {
        LeftAsIs.CLAIMS: 1,
        LeftAsIs.CLOSED: 1,
        LeftAsIs.CHANGED: 1,
        LeftAsIs.TAINTED: 1,
        LeftAsIs.NO_CHOICE: 3,
    }
    assert [group.nodes for group in found.groups] == [("open",)]
    # Closed nodes offer nothing to what is chosen for the others.
    assert found.fixed == {"claimed": 1, "whole": 8, "turn": 8, "half": 4}
    assert "its GPUs are given out by claims" in left_text("claims", 1)
    assert left_text("closed", 2) == "2 nodes are left unchanged: they take no pods now."


def test_gpus_of_a_node_are_counted_by_label_or_by_what_fits() -> None:
    assert gpu_count(node("m", HALVES[:1], MIG)) == 2
    assert gpu_count(node("m", HALVES, A100)) == 2
    assert gpu_count(node("l", TURNS, L4)) == 2
    halves = [ReplayDevice("a30", 1.0, 0.5, n, "2g.12gb") for n in range(2)]
    # Under the strategy `single` the label counts devices.
    assert gpu_count(node("a", halves, A30)) == 1


# ---------------------------------------------------------------- the program


def spread_out(group: NodeGroup) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield every choice of a group: how many nodes change, and its units then."""
    places = range(len(group.options))
    for changed in range(len(group.nodes) + 1):
        whole = group.options[0].whole_node
        picks = changed if whole else changed * group.gpus
        for chosen in combinations_with_replacement(places, picks):
            units = {tier: n * (len(group.nodes) - changed) for tier, n in group.units.items()}
            for place in chosen:
                for tier, n in group.options[place].units:
                    units[tier] = units.get(tier, 0.0) + n * (group.gpus if whole else 1)
            yield changed, units


def least_cost(
    groups: Sequence[NodeGroup], fixed: dict[str, float], wanted: Sequence[TierDemand], lost: float
) -> float:
    """Try every choice of every group; return the least cost."""
    best = float("inf")
    for chosen in product(*(list(spread_out(group)) for group in groups)):
        cost = sum(lost * group.gpus * n for group, (n, _) in zip(groups, chosen, strict=True))
        for one in wanted:
            offered = fixed.get(one.tier, 0.0) + sum(own.get(one.tier, 0.0) for _, own in chosen)
            cost += one.unmet(offered)
        best = min(best, cost)
    return best


def hours(most: int) -> st.SearchStrategy[tuple[float, ...]]:
    return st.lists(st.integers(0, most).map(float), min_size=4, max_size=4).map(tuple)


@settings(max_examples=60, deadline=None)
@given(
    mig=st.integers(0, 2),
    whole=st.integers(0, 2),
    turns=st.integers(0, 2),
    wanted=st.fixed_dictionaries(
        {"whole": hours(5), "half": hours(10), "seventh": hours(20), "turn": hours(20)}
    ),
    lost=st.sampled_from([0.0, 0.5, 2.0]),
)
def test_the_program_finds_what_trying_everything_finds(
    mig: int, whole: int, turns: int, wanted: dict[str, tuple[float, ...]], lost: float
) -> None:
    nodes = [
        *(node(f"m{n}", HALVES, MIG) for n in range(mig)),
        *(node(f"w{n}", WHOLE, A100) for n in range(whole)),
        *(node(f"l{n}", TURNS, L4) for n in range(turns)),
    ]
    found = choices(*nodes, activity={"turn": 0.2})
    weights = {"whole": 1.0, "half": 3 / 7, "seventh": 1 / 7, "turn": 0.25}
    demand = [TierDemand(tier, weights[tier], own) for tier, own in wanted.items()]
    solution = choose_layouts(found.groups, {"half": 1.0}, demand, hours_lost=lost)
    assert solution is not None
    assert solution.is_optimal
    assert solution.cost == pytest.approx(
        least_cost(found.groups, {"half": 1.0}, demand, lost), abs=1e-4
    )
    for group, change in zip(found.groups, solution.changes, strict=True):
        assert sum(change.gpus.values()) == change.nodes * group.gpus
        assert change.nodes <= len(group.nodes)


def test_a_solver_writes_nothing_among_the_logs(capfd: pytest.CaptureFixture[str]) -> None:
    found = choices(*(node(f"m{n}", HALVES, MIG) for n in range(2)))
    demand = [TierDemand("seventh", 1 / 7, (9.0, 11.0))]
    assert choose_layouts(found.groups, {}, demand, hours_lost=0.3) is not None
    ctypes.CDLL(None).fflush(None)  # the solver writes by C, which holds back what it has
    assert capfd.readouterr() == ("", "")


def test_a_solver_without_time_gives_nothing() -> None:
    found = choices(*(node(f"m{n}", HALVES, MIG) for n in range(30)))
    demand = [TierDemand("seventh", 1 / 7, tuple(float(n % 97) for n in range(300)))]
    assert choose_layouts(found.groups, {}, demand, hours_lost=0.3, most_seconds=0.0) is None


# ---------------------------------------------------------------- advice


def pods(tier: str, units: int, weight: float, count: int) -> list[tuple[RecordedWork, WorkTimes]]:
    """Return works of six hours each that all come at the fourth hour, and wait a day."""
    asked = 4 * HOUR
    work = RecordedWork(
        team="vision", tier=tier, units=units, asked_at=asked, runs_seconds=6 * HOUR
    )
    return [(work, WorkTimes(tier, units * weight, asked, None, None))] * count


def window(nodes: Sequence[ReplayNode], *of: list[tuple[RecordedWork, WorkTimes]]) -> DemandWindow:
    both = [pair for own in of for pair in own]
    works, happened = [work for work, _ in both], [times for _, times in both]
    return DemandWindow(works, happened, ReplayCluster(tuple(nodes)), 0.0, 7 * DAY)


NODES = (node("m1", HALVES, MIG), node("m2", HALVES, MIG))
QUIET = HeldGpus(
    0.0, {"m1": [2.0] * 100 + [1.0] + [2.0] * 67, "m2": [2.0] * 30 + [0.0] + [2.0] * 137}
)


def advice(demand: DemandWindow, held: HeldGpus = QUIET, **more: Any) -> LayoutAdvice:
    own = layout_choices(demand.cluster.nodes, RULES, {}, end=demand.end)
    return layout_advice(demand, own, held, Packing.SPREAD, **more)


def test_a_node_is_cut_anew_at_its_emptiest_hour_and_the_replay_says_what_it_gains() -> None:
    demand = window(NODES, pods("seventh", 1, 1 / 7, 14), pods("half", 1, 3 / 7, 2))
    found = advice(demand)
    (step,) = found.steps
    assert (step.node, step.before, step.after) == ("m2", "4 × 3g.40gb", "2 GPUs: 7 × 1g.10gb")
    assert (step.held_gpus, step.had_mig, step.lost_gpu_hours) == (0.0, True, 1.0)
    assert (step.starts_at, step.ends_at) == (7 * DAY + 30 * HOUR, 7 * DAY + 30.5 * HOUR)
    # Fourteen sevenths wait for 164 hours before, and start at once after.
    assert found.before.unmet_gpu_hours == pytest.approx(2 * 164)
    assert found.after.unmet_gpu_hours == 0
    assert found.before.stranded_gpu_hours == pytest.approx(4 / 7 * 168)
    assert found.after.stranded_gpu_hours == pytest.approx(2 / 7 * 168)
    tiers = {tier: (one, other) for tier, one, other in found.tiers()}
    before, after = tiers["seventh"]
    assert (before.capacity_gpu_hours, before.p95_seconds) == (0.0, None)
    assert after.capacity_gpu_hours == pytest.approx(2 * 168)
    assert after.allocated_gpu_hours == pytest.approx(2 * 6)
    assert after.unallocated_gpu_hours == pytest.approx(2 * 162)
    assert after.p95_seconds == 0
    assert found.lost_gpu_hours == 1.0
    assert found.after.unallocated_gpu_hours > found.after.unmet_gpu_hours
    assert msgspec.convert(msgspec.to_builtins(found), LayoutAdvice) == found


def test_two_nodes_are_changed_one_after_another_and_a_mixed_node_by_its_gpus() -> None:
    demand = window(NODES, pods("seventh", 1, 1 / 7, 18), pods("whole", 1, 1.0, 1))
    found = advice(demand, HeldGpus(0.0, {}))
    first, second = found.steps
    assert first.starts_at < second.starts_at
    assert found.after.unmet_gpu_hours == 0
    mixed = next(step for step in found.steps if len(step.layout) > 1)
    assert mixed.after == "1 GPU: 7 × 1g.10gb; 1 GPU: whole GPU"
    config = yaml.safe_load(mig_parted_file(found.steps))
    own = config["mig-configs"][node_labels(found.steps, mixed)["nvidia.com/mig.config"]]
    assert [one["devices"] for one in own] == [[0], [1]]


def test_nothing_is_advised_that_gains_less_than_it_costs_or_only_on_paper() -> None:
    assert advice(window(NODES, pods("half", 1, 3 / 7, 4))).steps == ()
    brief = window(NODES, pods("seventh", 1, 1 / 7, 1))
    brief = replace(brief, works=[replace(brief.works[0], leaves_at=5 * HOUR, runs_seconds=HOUR)])
    assert advice(brief).steps == ()
    # Eight sevenths of one pod fit on no node of two GPUs beside nothing else: a selector forbids.
    away = window(NODES, pods("seventh", 1, 1 / 7, 14))
    away = replace(away, works=[replace(one, requires=(("zone", "b"),)) for one in away.works])
    assert advice(away).steps == ()
    assert advice(away, most_seconds=0.0).steps == ()


def test_demand_is_what_would_have_run_had_nothing_been_pending() -> None:
    late = RecordedWork(team="v", tier="half", units=2, asked_at=HOUR, delay_seconds=HOUR / 2)
    service = RecordedWork(
        team="v", tier="half", units=1, asked_at=HOUR, runs_seconds=9.0, ends_at=3 * HOUR
    )
    before = RecordedWork(
        team="v", tier="half", units=1, asked_at=-DAY, runs_seconds=HOUR, running=True
    )
    times = [WorkTimes("half", gpus, 0.0, None, None) for gpus in (1.0, 0.5, 0.5)]
    demand = DemandWindow([late, service, before], times, ReplayCluster(()), 0.0, 4 * HOUR)
    (found,) = tier_demand(demand)
    assert found.hours == pytest.approx((1.0, 2.0, 3.0, 2.0))
    assert found.weight == pytest.approx(0.5)
    assert found.unmet(2.0) == pytest.approx(0.5)


def test_held_gpus_are_the_mean_of_each_hour_of_the_week() -> None:
    found = held_gpus(
        [("m1", 2.0, -HOUR, 1.5 * HOUR), ("m1", 2.0, 7 * DAY, 8 * DAY)], start=0.0, end=14 * DAY
    )
    assert [found.at("m1", hour * HOUR) for hour in (0, 1, 2, 24)] == [2.0, 1.5, 1.0, 0.0]
    assert found.at("m2", 0.0) == 0.0


def test_capacity_is_less_while_a_node_is_closed_or_lacks_devices() -> None:
    closed = node("m1", HALVES, MIG, closed=(ClosedSpan(0, DAY),))
    lacking = node("m2", HALVES, MIG, missing=(MissingUnits(0, DAY, "half", 1),))
    found, _ = layout_figures(
        window((closed, lacking)), ReplayCluster((closed, lacking)), Packing.PACK
    )
    assert found.tiers["half"].capacity_gpu_hours == pytest.approx(
        12 / 7 * 144 + 12 / 7 * 168 - 3 / 7 * 24
    )
    assert found.stranded_gpu_hours == pytest.approx(2 / 7 * 144)


# ---------------------------------------------------------------- files


def test_files_and_labels_of_replicas_and_whole_gpus() -> None:
    demand = window(
        [node("l", TURNS, L4), node("w", WHOLE, A100)],
        pods("turn", 1, 0.25, 16), pods("half", 1, 3 / 7, 4),
    )  # fmt: skip
    own = layout_choices(demand.cluster.nodes, RULES, {"turn": 0.1}, end=demand.end)
    found = layout_advice(demand, own, HeldGpus(0.0, {}), Packing.PACK)
    by_node = {step.node: step for step in found.steps}
    assert node_labels(found.steps, by_node["l"]) == {
        "nvidia.com/device-plugin.config": "time-slicing-8"
    }
    assert node_labels(found.steps, by_node["w"]) == {
        "nvidia.com/mig.config": "portal-1",
        "nvidia.com/device-plugin.config": "mig-mixed",
    }
    assert yaml.safe_load(mig_parted_file(found.steps)) == {
        "version": "v1",
        "mig-configs": {
            "portal-1": [{"devices": "all", "mig-enabled": True, "mig-devices": {"3g.40gb": 2}}]
        },
    }
    text = plugin_file(found.steps)
    assert "time-slicing-8: |" in text
    data = {key: yaml.safe_load(own) for key, own in yaml.safe_load(text)["data"].items()}
    assert data["time-slicing-8"]["sharing"] == {
        "timeSlicing": {
            "renameByDefault": False,
            "resources": [{"name": "nvidia.com/gpu", "replicas": 8}],
        }
    }
    assert data["mig-mixed"]["flags"] == {"migStrategy": "mixed"}
    assert (mig_parted_file(()), plugin_file(())) == ("", "")
    step = by_node["l"]
    mps = replace(
        step,
        layout=(replace(step.layout[0], layout=replace(step.layout[0].layout, strategy="mps")),),
    )
    assert "mps:" in plugin_file([mps])
    # Renamed replicas are another resource: nodes of both kinds must not share a configuration.
    renamed = replace(step.layout[0].layout, renamed=True)
    other = replace(step, node="r", layout=(replace(step.layout[0], layout=renamed),))
    data = yaml.safe_load(plugin_file([step, other]))["data"]
    for one, name in ((step, False), (other, True)):
        own = yaml.safe_load(
            data[node_labels([step, other], one)["nvidia.com/device-plugin.config"]]
        )
        assert own["sharing"]["timeSlicing"]["renameByDefault"] is name
    whole = replace(step, layout=(replace(step.layout[0], layout=GpuLayout((("whole", 1.0),))),))
    assert yaml.safe_load(yaml.safe_load(plugin_file([whole]))["data"]["whole"]) == {
        "version": "v1",
        "flags": {"migStrategy": "none"},
    }


@given(st.integers(0, 3), st.integers(0, 6), st.integers(1, 23))
def test_every_proposed_layout_shares_out_its_gpus(option: int, works: int, hours: int) -> None:
    """Capacity and what is stranded are all GPUs, of MIG layouts and of replicas alike."""
    cluster = [node("m", HALVES, MIG), node("l", TURNS, L4)]
    groups = {group.nodes[0]: group for group in choices(*cluster, activity={"turn": 0.2}).groups}
    changed = []
    for one in cluster:
        layouts = groups[one.name].options
        chosen = layouts[option % len(layouts)]
        changed.append(changed_node(one, groups[one.name].model, [chosen] * 2))
    asked = [
        RecordedWork(team="a", tier=tier, units=1.0, asked_at=HOUR, runs_seconds=hours * HOUR)
        for tier in ("half", "seventh", "turn", "whole")
        for _ in range(works)
    ]
    happened = [WorkTimes(work.tier, 0.1, HOUR, None, None) for work in asked]
    window = DemandWindow(asked, happened, ReplayCluster(tuple(changed)), 0.0, DAY)
    figures, _ = layout_figures(window, window.cluster, Packing.FIRST)
    capacity = sum(one.capacity_gpu_hours for one in figures.tiers.values())
    allocated = sum(one.allocated_gpu_hours for one in figures.tiers.values())
    assert capacity + figures.stranded_gpu_hours == pytest.approx(4 * 24)
    assert allocated + figures.unallocated_gpu_hours == pytest.approx(capacity)
    assert 0 <= figures.unmet_gpu_hours <= 0.1 * 23 * len(asked) + 1e-9
