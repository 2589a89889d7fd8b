"""Tables on terminals of any width keep every name, shape and decision, and notebooks show a report once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from ngraph_mxnet.base.rendered import Facts, facts_table, table

NAME = "resnetv20_stage1_batchnorm1_fwd_output_with_a_long_name"
REASON = "float: 0.31 of the damage, and not faster than 1.2 ms"


@dataclass(frozen=True, repr=False)
class Told(Facts):
    number: int = 1

    def shown(self) -> Iterator[Any]:
        yield table("|layer", ">damage", "shape", "decision", rows=[(NAME, "1.25e-3", "f32[1,64,56,56]", REASON)],
                    title="Layers", caption="of samples")
        yield facts_table([("inputs", "x: f32[1]\ny: f32[2]")])


def printed(width: int) -> str:
    text = StringIO()
    Console(file=text, width=width, force_jupyter=False).print(Told())
    return text.getvalue()


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 120, 200])
def test_nothing_is_cut_off(width: int) -> None:
    lines = printed(width).splitlines()
    assert max(map(len, lines)) <= width
    whole = "".join(line.strip() for line in lines).replace(" ", "")
    assert "…" not in whole
    for text in ("Layers", "of samples", "1.25e-3", "f32[1,64,56,56]"):
        assert text.replace(" ", "") in whole
    if width >= 80:
        assert NAME in printed(width)


def test_a_row_is_told_as_a_list_where_the_table_is_too_wide() -> None:
    assert [text.rstrip() for text in printed(80).splitlines()][:4] == [
        "Layers", f"layer {NAME}",
        "  damage 1.25e-3; shape f32[1,64,56,56]; decision float: 0.31 of the damage, and",
        "  not faster than 1.2 ms"]
    assert f"│ {NAME} │ 1.25e-3 │ f32[1,64,56,56] │ {REASON} │" in printed(200)


def test_a_kernel_shows_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A console of rich displays in a kernel whatever its file is, unless it is told not to."""
    from rich import console as rich_console

    shown = []
    monkeypatch.setattr(rich_console, "_is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda *args: shown.append(args))
    assert NAME in str(Told()) and NAME in repr(Told())
    html = Told()._repr_html_()
    assert NAME in html and "font-family:monospace" in html and "{code}" not in html
    assert shown == []
