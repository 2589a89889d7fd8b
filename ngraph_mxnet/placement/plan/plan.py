"""The plan of a placed graph, as text, JSON and pictures."""

from __future__ import annotations

from typing import Any

from ngraph_mxnet.placement.plan.plan_data import PlanData
from ngraph_mxnet.rendered import Rendered


class Plan(Rendered, PlanData):
    """See `docs/hybrid.md`."""

    width = 120

    def __rich__(self) -> Any:
        from ngraph_mxnet.placement.plan.plan_table import render

        return render(self)

    def svg(self) -> str:
        """A picture of the placed graph."""
        from ngraph_mxnet.placement.plan.picture import graph_picture

        return graph_picture(self)

    def timeline_svg(self) -> str:
        """A picture of the predicted schedule."""
        from ngraph_mxnet.placement.plan.picture import timeline_picture

        return timeline_picture(self)
