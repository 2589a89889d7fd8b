"""Simulation of a data-parallel training step on a cluster: the trace of a real step, on links of stated speed."""

from ngraph_mxnet.distributed.simulation.calibration import Calibration
from ngraph_mxnet.distributed.simulation.cluster import Cluster, Link, Scheme, SimulationError
from ngraph_mxnet.distributed.simulation.prediction import ALGORITHMS, Prediction, all_reduce_seconds, predict
from ngraph_mxnet.distributed.simulation.trace import Gradient, Trace

__all__ = [
    "ALGORITHMS",
    "Calibration",
    "Cluster",
    "Gradient",
    "Link",
    "Prediction",
    "Scheme",
    "SimulationError",
    "Trace",
    "all_reduce_seconds",
    "predict",
]
