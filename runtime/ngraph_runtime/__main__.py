"""`python -m ngraph_runtime`."""

from __future__ import annotations

import sys

from ngraph_runtime.run import main

sys.exit(main())
