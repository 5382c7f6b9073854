"""The geometry of drawings: nothing leaves its box, parts add up, and there is one scale."""

import itertools
import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.clusters.domain.window import Window
from apps.usage.domain.amounts import Amounts, nano
from apps.web.components.drawings import (
    BarPart,
    BulletRow,
    FleetGpu,
    FleetGroup,
    FleetNode,
    FleetPart,
    GridHead,
    GridRow,
    HeatCell,
    Panel,
    RankedRow,
    RankPart,
    ScatterPoint,
    Segment,
    TimeAxis,
    TimelineRow,
    borrowing_matrix,
    bullet_bars,
    calendar,
    capacity_flow,
    fleet,
    heat_css,
    heat_map,
    ledger_bar,
    ranking,
    scatter,
    small_multiples,
    sparkline,
    stacked_bar,
    timeline,
)
from apps.web.components.drawings.base import percent_text, top_of
from apps.web.components.drawings.fleet import DENSE
from apps.web.components.drawings.flow import HEIGHT
from apps.web.components.drawings.panels import HEIGHT as PANEL_HEIGHT
from apps.web.components.drawings.panels import WIDTH
from apps.web.components.formats import duration
from apps.web.components.tables import ALLOCATED_CLASSES, CAPACITY_CLASSES

BERLIN = ZoneInfo("Europe/Berlin")
START = datetime(2026, 10, 18, 22, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
amounts = st.floats(0, 5_000, allow_nan=False)
known = st.none() | amounts


@given(st.lists(known, max_size=20))
def test_a_scale_ends_at_or_above_every_value(values: list[float | None]) -> None:
    top = top_of(values)
    assert top > 0
    assert all(value <= top * (1 + 1e-6) for value in values if value is not None)


# ---------------------------------------------------------------- bars


@given(st.lists(st.builds(BulletRow, st.just("t"), known, known, known, known), max_size=12))
def test_bullets_stay_on_one_scale(rows: list[BulletRow]) -> None:
    drawn = bullet_bars("b", "Bars", rows)
    for bullet in (*drawn.bullets, *drawn.more):
        if bullet.row.allocated is None:
            assert (bullet.value, bullet.text) == ("", "no data")
            continue
        assert bullet.allocated == pytest.approx(100 * bullet.row.allocated / drawn.top, abs=0.02)
        assert min(bullet.within, bullet.borrowed, bullet.demand) >= 0
        assert bullet.allocated + bullet.demand <= 100.01
        if bullet.entitlement is not None:
            assert bullet.within <= bullet.entitlement


def test_what_is_over_an_entitlement_is_borrowed() -> None:
    (bullet,) = bullet_bars("b", "Bars", [BulletRow("vision", 30, 20, 40)]).bullets
    assert (bullet.within, bullet.borrowed, bullet.demand) == (50.0, 25.0, 25.0)
    assert bullet.text == "30 GPUs allocated, entitlement 20, demand 40"


def test_many_rows_unfold_and_a_file_has_all() -> None:
    drawn = bullet_bars("b", "Bars", [BulletRow(f"t{n}", n) for n in range(200)])
    assert (len(drawn.bullets), len(drawn.more)) == (10, 50)
    assert drawn.more_text == "50 more of 190; the file has all"
    assert drawn.table is not None
    assert len(list(drawn.table.records())) == 201


@given(st.lists(amounts, max_size=12), st.none() | amounts)
def test_parts_of_a_bar_follow_each_other_and_fill_it(
    sizes: list[float], whole: float | None
) -> None:
    parts = [BarPart(f"p{n}", size, "", "of-idle") for n, size in enumerate(sizes)]
    drawn = stacked_bar("s", "Bar", parts, whole=whole)
    end = 0.0
    for part in drawn.slices:
        assert part.x == pytest.approx(end, abs=0.1)
        assert part.width > 0
        end = part.x + part.width
    assert end <= 100.2
    if drawn.slices and not whole:
        assert end == pytest.approx(100, abs=0.2)


def test_a_bar_of_a_ledger_line_has_its_classes_and_no_part_of_nothing() -> None:
    line = Amounts(allocated=nano(4), busy=nano(3), unmeasured=nano(1))
    drawn = ledger_bar("s", "Bar", line, ALLOCATED_CLASSES)
    assert [(s.part.css, s.part.shape, s.width) for s in drawn.slices] == [
        ("of-active", "fill", 75.0),
        ("of-unmeasured", "hatch", 25.0),
    ]


# ---------------------------------------------------------------- grids


@pytest.mark.parametrize(
    ("ratio", "css"),
    [
        (None, "heat-no-data"),
        (0.0, "of-allocated heat-0"),
        (0.001, "of-allocated heat-1"),
        (0.3, "of-allocated heat-3"),
        (1.0, "of-allocated heat-10"),
        (1.004, "of-allocated heat-10"),
        (1.1, "of-borrowed heat-4"),
        (9.0, "of-borrowed heat-10"),
    ],
)
def test_a_cell_has_the_level_of_its_ratio(ratio: float | None, css: str) -> None:
    assert heat_css(ratio) == css


def test_no_data_zero_and_no_such_pair_are_three_things() -> None:
    cells = [HeatCell(None, "not watched"), HeatCell(0.0), None]
    heads = [GridHead("a"), GridHead("b"), GridHead("c")]
    drawn = heat_map("h", "Heat", columns=heads, rows=[GridRow("vision", cells)])
    assert [one.css for one in drawn.rows[0].cells] == [
        "heat-no-data",
        "of-allocated heat-0",
        "heat-blank",
    ]
    assert [one.cell.shown for one in drawn.rows[0].cells if one.cell] == ["n/a", "0 %"]
    assert drawn.table is not None
    assert list(drawn.table.records()) == [
        ["team", "tier", "ratio"],
        ["vision", "a", ""],
        ["vision", "b", "0"],
    ]


def test_a_matrix_has_the_largest_loans_first() -> None:
    loans = {("a", "x"): 2.0, ("b", "y"): 8.0, ("b", "x"): 0.0, ("c", "c"): 0.0}
    drawn = borrowing_matrix("m", "Matrix", loans)
    assert [row.row.label for row in drawn.rows] == ["b", "a"]
    assert [head.label for head in drawn.columns] == ["y", "x"]
    assert [[one.css for one in row.cells] for row in drawn.rows] == [
        ["of-borrowed heat-10", "heat-blank"],
        ["heat-blank", "of-borrowed heat-3"],
    ]
    assert borrowing_matrix("m", "Matrix", {}).empty


@pytest.mark.parametrize(
    ("start", "days", "columns"),
    [
        pytest.param(START, 7, 25, id="the end of summer time has an hour twice"),
        pytest.param(datetime(2026, 3, 28, 23, tzinfo=UTC), 1, 24, id="its begin lacks one"),
    ],
)
def test_every_hour_of_a_window_has_its_cell(start: datetime, days: int, columns: int) -> None:
    window = Window(start, (start + days * DAY + HOUR if columns == 25 else start + 23 * HOUR))
    hours = [start + n * HOUR for n in range(int((window.end - start) / HOUR))]
    drawn = calendar(
        "c",
        "Hours",
        dict.fromkeys(hours, 0.5),
        window=window,
        zone=BERLIN,
        missing=hours[:1],
        partial=hours[1:2],
    )
    assert {len(day.cells) for day in drawn.days} == {columns}
    cells = [cell.css for day in drawn.days for cell in day.cells]
    assert sum(css != "heat-blank" for css in cells) == len(hours)
    assert cells.count("heat-no-data") == 1
    assert cells.count("of-allocated heat-5 heat-partial") == 1


def test_a_missing_hour_is_no_zero_and_a_coming_one_is_blank() -> None:
    window = Window(START, START + 3 * HOUR)
    drawn = calendar("c", "Hours", {START: 0.0}, window=window, zone=BERLIN, missing=[START + HOUR])
    assert [cell.css for cell in drawn.days[0].cells[:3]] == [
        "of-allocated heat-0",
        "heat-no-data",
        "heat-blank",
    ]
    assert drawn.days[0].text == "average 0 %, 1 h missing"


# ---------------------------------------------------------------- over time


def coordinates(path: str) -> list[tuple[str, float]]:
    """Return the numbers of a path with the letter that they follow."""
    found = re.findall(r"([MVH ])(-?[\d.e+-]+)", path)
    return [(letter, float(number)) for letter, number in found]


@given(
    st.integers(1, 30).flatmap(
        lambda n: st.lists(st.lists(known, min_size=n, max_size=n), min_size=1, max_size=4)
    ),
    st.floats(0, 1),
)
def test_panels_share_a_scale_and_stay_in_their_box(
    series: list[list[float | None]], elapsed: float
) -> None:
    periods = [START + n * DAY for n in range(len(series[0]))]
    panels = [Panel(f"p{n}", values, demand=values) for n, values in enumerate(series)]
    drawn = small_multiples("p", "Panels", panels, TimeAxis(periods, BERLIN, elapsed=elapsed))
    highest = max((v for values in series for v in values if v is not None), default=0)
    assert highest <= drawn.top * (1 + 1e-6)
    for one in drawn.panels:
        for path in (one.area, one.running, one.demand):
            for letter, number in coordinates(path):
                assert 0 <= number <= (PANEL_HEIGHT if letter in "V " else WIDTH)
        assert all(left >= 0 and left + width <= 100.1 for left, width in one.gaps)


def test_a_missing_period_is_a_gap_and_never_zero() -> None:
    values = [2.0, None, None, 4.0]
    periods = [START + n * DAY for n in range(4)]
    axis = TimeAxis(periods, BERLIN, estimated=1, elapsed=0.5)
    drawn = small_multiples("p", "Panels", [Panel("a", values, [4.0] * 4)], axis)
    (panel,) = drawn.panels
    assert panel.gaps == [(25.0, 50.0)]
    assert panel.area == "M0 100V50H250V100z"
    assert panel.running == "M750 100V0H875V100z"
    assert drawn.bands == [(0.0, 25.0)]
    assert [key.label for key in drawn.legend][-3:] == ["Estimated", "No data", "Running day"]
    assert small_multiples("p", "Panels", [Panel("a", [None] * 4)], axis).empty


def test_incomplete_hours_have_a_band_and_those_of_today_are_pale() -> None:
    periods = [START + n * HOUR for n in range(4)]
    axis = TimeAxis(periods, BERLIN, by_hour=True, incomplete=periods[1:2], today=2)
    drawn = small_multiples("p", "Panels", [Panel("a", [2.0] * 4)], axis)
    (panel,) = drawn.panels
    assert drawn.bands == [(25.0, 25.0)]
    assert (panel.area, panel.running) == ("M0 100V0H250V0H500V100z", "M500 100V0H750V0H1000V100z")
    assert [key.label for key in drawn.legend][-2:] == ["Incomplete", "Today"]


def test_sparklines_of_one_column_have_one_scale() -> None:
    low, high = sparkline([0.25], text="", top=1.0), sparkline([1.0, None], text="", top=1.0)
    assert low is not None
    assert high is not None
    assert (low.line, high.line) == ("M0 75V75H1000", "M0 0V0H500")
    assert sparkline([None, None], text="") is None


def test_states_of_a_pod_are_cut_at_the_window() -> None:
    window = Window(START, START + 10 * HOUR)
    segments = [
        Segment(START - 5 * HOUR, START + 5 * HOUR, "pending"),
        Segment(START + 5 * HOUR, START + 5 * HOUR, "starting"),
        Segment(START + 5 * HOUR, START + 50 * HOUR, "running"),
    ]
    drawn = timeline("t", "Pods", [TimelineRow("p", segments)], window=window, zone=BERLIN)
    (life,) = drawn.lives
    assert [(s.x, s.width, s.css) for s in life.segments] == [
        (0.0, 50.0, "of-demand"),
        (50.0, 50.0, "of-active"),
    ]
    assert life.text == f"p: pending {duration(18_000)}, running {duration(18_000)}"


# ---------------------------------------------------------------- flow, scatter, fleet


@given(st.dictionaries(st.sampled_from([c.key for c in CAPACITY_CLASSES]), amounts))
def test_what_flows_in_flows_out_and_names_do_not_meet(gpus: dict[str, float]) -> None:
    drawn = capacity_flow("f", "Flow", gpus)
    if drawn.empty:
        assert sum(gpus.values()) < 1e-5
        return
    columns = [list(own) for _, own in itertools.groupby(drawn.nodes, key=lambda node: node.x)]
    for column in columns:
        assert all(node.y >= 0 and node.y + node.height <= HEIGHT + 0.2 for node in column)
        middles = [node.middle for node in column]
        assert all(b - a >= 32 for a, b in itertools.pairwise(middles))
    heights = [sum(node.height for node in column) for column in columns]
    assert heights[0] == pytest.approx(heights[1], abs=0.5)
    if len(columns) > 2:
        assert heights[2] == pytest.approx(columns[1][0].height, abs=0.5)


@given(
    st.lists(
        st.builds(
            ScatterPoint,
            st.text(max_size=60),
            amounts,
            st.none() | st.floats(0, 1.2),
            amounts,
            st.just(""),
        ),
        max_size=30,
    )
)
def test_circles_stay_in_their_plot_and_labels_apart(points: list[ScatterPoint]) -> None:
    drawn = scatter("s", "Scatter", points)
    for circle in drawn.circles:
        assert 0 <= circle.x <= 100
        assert 0 <= circle.y <= drawn.height
        assert 4 <= circle.radius <= 22
    named = [c for c in drawn.circles if c.is_named]
    assert len(named) == min(5, len(points))
    for left in (True, False):
        at = sorted(c.label_y for c in named if c.is_left is left)
        assert all(b - a >= 14.9 for a, b in itertools.pairwise(at))


def test_the_money_of_a_workload_is_the_area_of_its_circle() -> None:
    points = [ScatterPoint("a", 8, 0.5, 400, ""), ScatterPoint("b", 2, 0.0, 100, "")]
    large, small = scatter("s", "Scatter", points).circles
    assert (large.radius, small.radius) == (22.0, 11.0)
    assert (large.y, small.y) == (130.0, 260.0)


def test_parts_lie_inside_their_gpu_and_broken_nodes_come_first() -> None:
    mig = FleetGpu("active", parts=[FleetPart("active", 3), FleetPart("free", 4)])
    replicas = FleetGpu("idle", parts=[FleetPart("idle")] * 4, shared=True)
    nodes = [
        FleetNode("good", [FleetGpu("active")] * 9 + [mig, replicas]),
        FleetNode("bad", [FleetGpu("unavailable", "XID 79")]),
    ]
    drawn = fleet("f", "Fleet", [FleetGroup("tier", nodes)])
    bad, good = drawn.groups[0].strips
    assert (bad.node.label, bad.is_broken, bad.text) == ("bad", True, "bad: 1 unavailable")
    assert len(good.cells) == 9 + 2 + 4
    for cell in good.cells:
        assert cell.x + cell.width <= good.width
        assert cell.y + cell.height <= good.height + 0.01
    assert [key.text for key in drawn.legend] == ["1", "4", "10", "1"]


def test_a_thousand_nodes_are_small_cells_joined_by_colour() -> None:
    gpus = [FleetGpu(state) for state in ("active", "idle")] * 4
    groups = [FleetGroup("tier", [FleetNode(f"n{n}", gpus, "/x/") for n in range(1000)])]
    drawn = fleet("f", "Fleet", groups)
    assert drawn.is_dense
    items = drawn.groups[0].dense_markup.splitlines()
    assert len([one for one in items if one.strip()]) == 1000
    assert items[0] == (
        '<li><a href="/x/" title="n0: 4 idle, 4 active">'
        '<svg width="36" height="18" aria-hidden="true">'
        '<path class="filled of-active" '
        'd="M0 0h8v8h-8zM18 0h8v8h-8zM0 9h8v8h-8zM18 9h8v8h-8z"/>'
        '<path class="filled of-idle" '
        'd="M9 0h8v8h-8zM27 0h8v8h-8zM9 9h8v8h-8zM27 9h8v8h-8z"/></svg></a></li>'
    )
    assert drawn.table is not None
    assert len(list(drawn.table.records())) == 1001
    assert len(drawn.table.rows) == 25


def test_small_strips_share_cells_of_the_same_gpus_alone_and_escape_their_words() -> None:
    sound, broken = FleetGpu("active"), FleetGpu("unavailable", css='"')
    nodes = [FleetNode(f"n{n}", [sound], "/x/?a=1&b=2", "<b>") for n in range(DENSE)]
    drawn = fleet("f", "Fleet", [FleetGroup("tier", [*nodes, FleetNode("<i>", [broken, sound])])])
    strips = drawn.groups[0].strips
    assert [strip.node.label for strip in strips[:2]] == ["<i>", "n0"]
    assert [len(strip.cells) for strip in strips[:3]] == [2, 1, 1]
    first, second, *_ = drawn.groups[0].dense_markup.splitlines()
    assert first == (
        '<li class="fleet-broken"><svg width="18" height="9" role="img" '
        'aria-label="&lt;i&gt;: 1 unavailable, 1 active">'
        '<path class="filled &quot;" d="M0 0h8v8h-8z"/>'
        '<path class="filled of-active" d="M9 0h8v8h-8z"/></svg></li>'
    )
    assert second.strip().startswith('<li><a href="/x/?a=1&amp;b=2" title="n0: &lt;b&gt;"><svg')


# ---------------------------------------------------------------- texts


@pytest.mark.parametrize(
    ("ratio", "text"), [(None, "–"), (0, "0 %"), (0.001, "<1 %"), (0.964, "96 %"), (3.1, "310 %")]
)
def test_ratios_are_whole_percents(ratio: float | None, text: str) -> None:
    assert percent_text(ratio) == text


IDLE = (
    RankPart("free_gpu_hours", "Free", "of-unallocated"),
    RankPart("idle_gpu_hours", "Idle", "of-idle"),
)


@given(st.lists(st.tuples(amounts, amounts), max_size=80))
def test_ranked_bars_have_one_scale_and_their_parts_follow_one_another(
    rows: list[tuple[float, float]],
) -> None:
    drawn = ranking(
        "idle", "Idle", [RankedRow(f"t{n}", own) for n, own in enumerate(rows)], parts=IDLE
    )
    shown = [*drawn.ranked, *drawn.more]
    assert len(shown) == min(len(rows), 60)
    assert len(list(drawn.table.every() if drawn.table and drawn.table.every else rows)) == len(
        rows
    )
    for one in shown:
        first, second = one.slices
        assert first.x == 0.0
        assert second.x == pytest.approx(first.width, abs=0.01)
        assert second.x + second.width <= 100.02
    assert bool(drawn.empty) is not bool(rows)


def test_the_table_of_a_ranking_begins_with_the_largest_and_says_how_many_there_are() -> None:
    rows = [RankedRow(f"team-{n}", (float(n),)) for n in range(46, 0, -1)]
    table = ranking("short", "Unmet", rows, parts=[RankPart("amount", "Unmet", "of-unmet")]).table
    assert table is not None
    assert [row.values["team"] for row in table.rows] == [f"team-{n}" for n in range(46, 21, -1)]
    assert table.size_text == "25 of 46 rows"
    assert table.note.startswith("The first 25 of 46 rows")
    assert table.every is not None
    assert len(list(table.every())) == 46


def test_a_ranked_row_says_its_amounts_and_leads_to_their_explanation() -> None:
    row = RankedRow("vision", (3.0, 1.5), href="/team/", note="GPU-h", explain_href="/explain/")
    (one,) = ranking("idle", "Idle", [row], parts=IDLE).ranked
    assert (one.value, one.said) == ("4.5", "vision: free 3 GPU-h, idle 1.5 GPU-h")
    with pytest.raises(ValueError, match="shorter"):
        ranking("idle", "Idle", [RankedRow("vision", (3.0,))], parts=IDLE)
