"""`doctor`: what works here and what does not, as text to send with a bug report."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from ngraph_mxnet.doctor.examine import Finding, examine
from ngraph_mxnet.version import __version__

_INDENT = " " * 4


@click.command()
@click.option("--import", "imports", multiple=True, metavar="MODULE",
              help="A module that the self-test imports first, as your script does: what it brings may be at fault. "
                   "Once for each.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(imports: tuple[str, ...], as_json: bool) -> None:
    """Check this installation on this machine, and print what a bug report needs.

    A small net runs on the interpreter, the CPU backend and MXNet, and the results are compared, which takes some
    seconds. Only environment variables of NGRAPH, MXNet, OpenMP, oneDNN, OpenVINO and ONNX Runtime are shown: NGRAPH_*,
    MXNET_*, OMP_*, GOMP_*, KMP_*, MKLDNN_*, DNNL_*, ONEDNN_*, OV_* and ORT_*. Your home folder is shown as ~. The exit
    status is 1 when something is wrong.
    """
    findings = examine(imports)
    wrong = sum(1 for finding in findings if finding.problems)
    if as_json:
        found = {"version": __version__, "fine": not wrong, "checks": [finding.to_dict() for finding in findings]}
        text = json.dumps(found, indent=2)
    else:
        text = "\n".join(_lines(findings, wrong))
    click.echo(without_home(text, Path.home()))
    sys.exit(1 if wrong else 0)


def without_home(text: str, home: Path) -> str:
    """A user's name is nobody's business."""
    return text if home == Path("/") else re.sub(rf"{re.escape(str(home))}(?![\w.-])", "~", text)


def _lines(findings: Sequence[Finding], wrong: int) -> Iterator[str]:
    for finding in findings:
        yield f"[{finding.status}] {finding.check}"
        for name, value in finding.facts.items():
            yield f"{_INDENT}{name}: {_shown(value)}"
        for kind, texts in (("wrong", finding.problems), ("note", finding.notes)):
            yield from (f"{_INDENT}{kind}: {text}" for text in texts)
    yield ""
    yield (f"ngraph_mxnet {__version__}: {len(findings)} checks, "
           f"{f'something is wrong in {wrong}' if wrong else 'nothing is wrong'}. "
           "Send all of this with a bug report.")


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(each)}" for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
