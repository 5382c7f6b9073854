"""Pictures drawn on the server, as SVG and grids: what pages import of them.

Each is made by a function of plain values and framed by one template, with title, legend, the
table of its amounts and the link to its file:

    bars = bullet_bars("teams", "Allocation vs. entitlement", rows)
    context["bars"] = bars            # and bars.table among the tables that can be files
    {% include "components/_drawing.html" with drawing=bars %}
    {% include bars.template with drawing=bars %}     the picture alone

Units and shapes are told by each module. Colours come from classes alone: one hue, one meaning.
"""

from apps.web.components.drawings.bars import (
    BarPart,
    BulletRow,
    bullet_bars,
    ledger_bar,
    stacked_bar,
)
from apps.web.components.drawings.base import Drawing
from apps.web.components.drawings.calendar import calendar
from apps.web.components.drawings.fleet import (
    FleetGpu,
    FleetGroup,
    FleetNode,
    FleetPart,
    fleet,
)
from apps.web.components.drawings.flow import capacity_flow
from apps.web.components.drawings.heat_map import (
    GridHead,
    GridRow,
    HeatCell,
    borrowing_matrix,
    heat_css,
    heat_map,
)
from apps.web.components.drawings.panels import (
    EveryPanel,
    Panel,
    TimeAxis,
    small_multiples,
    sparkline,
)
from apps.web.components.drawings.ranking import RankedRow, RankPart, ranking
from apps.web.components.drawings.scatter import ScatterPoint, scatter
from apps.web.components.drawings.timeline import Segment, TimelineRow, timeline
