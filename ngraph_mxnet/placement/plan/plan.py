"""The plan of a placed graph, as text, JSON and pictures."""

from __future__ import annotations

from typing import Any

from ngraph_mxnet.placement.plan.plan_data import PlanData


class Plan(PlanData):
    """See `docs/hybrid.md`."""

    def __rich__(self) -> Any:
        from ngraph_mxnet.placement.plan.plan_table import render

        return render(self)

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=120)
        with console.capture() as capture:
            console.print(self)
        return capture.get().rstrip()

    def svg(self) -> str:
        """A picture of the placed graph."""
        from ngraph_mxnet.placement.plan.picture import graph_picture

        return graph_picture(self)

    def timeline_svg(self) -> str:
        """A picture of the predicted schedule."""
        from ngraph_mxnet.placement.plan.picture import timeline_picture

        return timeline_picture(self)
