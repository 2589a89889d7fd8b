"""Lets the fuzzer import what the tests draw models with and run them by."""

from __future__ import annotations

import sys

from fuzzing.frame import SCRIPTS

for _folder in ("", "backend", "conformance", "plugin", "targets/cpu"):
    _path = str(SCRIPTS.parent / "tests" / _folder)
    if _path not in sys.path:
        sys.path.append(_path)
