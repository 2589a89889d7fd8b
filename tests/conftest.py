"""Settings that all tests share.

The default profile is small and repeatable. `HYPOTHESIS_PROFILE=thorough` searches with fresh seeds.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

# What a test breaks on purpose must not be found again by the next run, nor by the user.
os.environ.setdefault("NGRAPH_CACHE_DIR", "off")
# Quantised operators are compiled on every CPU, also where MXNet's own are faster.
os.environ.setdefault("NGRAPH_INT8", "1")

_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
settings.register_profile(
    "default",
    max_examples=8,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=_QUIET,
)
settings.register_profile("thorough", max_examples=300, deadline=None, suppress_health_check=_QUIET)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
