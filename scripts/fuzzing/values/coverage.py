"""What the trials of a run reached: kernels, passes that changed a graph, lowerings, rules of both frontends."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.frontends.onnx.rules.registry import all_rules as onnx_rules
from ngraph_mxnet.passes.base import PassManager, PassRecord
from ngraph_mxnet.targets.cpu.lower import RULES
from ngraph_mxnet.targets.cpu.lower.context import LoweringRule
from ngraph_mxnet.targets.cpu.params import KERNELS
from ngraph_mxnet.targets.cpu.pipeline import pipeline
from ngraph_mxnet.targets.cpu.program.builder import ProgramBuilder

KINDS = ("kernels", "lowerings", "passes", "ONNX rules", "MXNet rules")
_REFUSED = "refused "
"""Before the names of rules that gave a reason instead."""
seen: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}


def _counted(kind: str, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def counting(*args: Any, **more: Any) -> Any:
        try:
            result = function(*args, **more)
        except UnsupportedError:
            seen[kind][_REFUSED + name] += 1
            raise
        seen[kind][name] += 1
        return result

    return counting


def watch() -> None:
    """Count from now on, in this process."""
    for op, rule in RULES.items():
        RULES[op] = LoweringRule(_counted("lowerings", op, rule.lower), rule.check)
    for (domain, op), lower in onnx_rules().items():
        onnx_rules()[domain, op] = _counted("ONNX rules", _onnx_name(domain, op), lower)
    emit, run_pass = ProgramBuilder.emit, PassManager._run_pass

    def emitting(self: ProgramBuilder, kernel: str, *args: Any, **more: Any) -> Any:
        seen["kernels"][kernel.removeprefix("ng_").rpartition("__")[0]] += 1
        return emit(self, kernel, *args, **more)

    def running(self: PassManager, pass_: Any, graph: Any, report: Any) -> bool:
        changed = run_pass(self, pass_, graph, report)
        record: PassRecord = report.records[-1]
        seen["passes"][record.name] += changed
        return changed

    ProgramBuilder.emit = emitting  # type: ignore[method-assign]
    PassManager._run_pass = running  # type: ignore[method-assign]


def watch_mxnet() -> None:
    """The rules of MXNet's bridge, too, which needs MXNet."""
    from ngraph_mxnet.frontends.mxnet.rules.registry import all_rules

    for name, rule in all_rules().items():
        all_rules()[name] = replace(rule, lower=_counted("MXNet rules", name, rule.lower))


def _onnx_name(domain: str, op: str) -> str:
    return f"{domain}:{op}" if domain else op


def _pass_names(passes: Iterable[Any]) -> list[str]:
    return [name for each in passes
            for name in (_pass_names(each.passes) if hasattr(each, "passes") else [each.name])]


def there_are() -> dict[str, list[str]]:
    """All that could be reached, by kind."""
    from ngraph_mxnet.frontends.mxnet.rules.registry import all_rules

    return {"kernels": list(KERNELS), "lowerings": list(RULES), "passes": list(dict.fromkeys(_pass_names(pipeline()))),
            "ONNX rules": [_onnx_name(*key) for key in onnx_rules()], "MXNet rules": list(all_rules())}


def add_to(path: Path) -> None:
    """Add what this process reached to the file, and forget it."""
    found = read(path)
    for kind, counter in seen.items():
        found[kind].update(+counter)
        counter.clear()
    path.write_text(json.dumps(found, indent=0))


def read(path: Path) -> dict[str, Counter[str]]:
    known = json.loads(path.read_text()) if path.exists() else {}
    return {kind: Counter(known.get(kind, {})) for kind in KINDS}


def report(path: Path) -> str:
    """A line for each kind: how many of how many ran; and those that never did."""
    found, lines = read(path), []
    for kind, names in there_are().items():
        never = sorted(name for name in names if not found[kind][name])
        refused = [name for name in never if found[kind][_REFUSED + name]]
        lines.append(f"{kind}: {len(names) - len(never)} of {len(names)} ran"
                     + (f"; never {', '.join(name for name in never if name not in refused)}" if never else "")
                     + (f"; only refused {', '.join(refused)}" if refused else ""))
    return "\n".join(lines)
