"""Every code block of the documentation: Python runs, commands parse, IR text reads, or the page says why not."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import reader
from blocks import PAGES, ROOT, Block, blocks, blocks_of
from commands import CommandError, check, commands_in

from ngraph_mxnet.ir import parse_graph

PROSE = {"text", "c", "toml"}
"""Languages of blocks that nobody runs: layouts of files, drawings, output, declarations."""
RUN = ("python", "sh")


@pytest.fixture(scope="module")
def readers_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    """A folder with the reader's files, and what they hold."""
    made = tmp_path_factory.mktemp("reader")
    reader.write_files(made)
    return made, {path.name: path.read_bytes() for path in made.iterdir()}


@pytest.fixture
def folder(readers_files: tuple[Path, dict[str, bytes]]) -> Path:
    """The folder, whose files are the reader's again: commands of other pages write files of the same names."""
    made, held = readers_files
    for name, data in held.items():
        (made / name).write_bytes(data)
    return made


def test_every_block_is_run_or_says_why_not() -> None:
    left = [f"{block} ({block.language or 'no language'})" for block in blocks()
            if not (block.language in (*RUN, *PROSE) or block.language.startswith("{"))]
    assert not left, "blocks that no test knows: give them a language (an indented one has none): " + ", ".join(left)


def test_reasons_stand_above_what_would_run() -> None:
    """Not above what is not run in any case, where a reason would hide nothing."""
    marks = sum(line.startswith("<!-- not run:") for page in PAGES for line in page.read_text("utf-8").splitlines())
    assert marks == sum(bool(block.not_run) for block in blocks(*RUN))


def check_all(text: str) -> int:
    """Raises CommandError of the first command that can't run; gives their number."""
    found = list(commands_in(text))
    for words in found:
        check(words)
    return len(found)


@pytest.mark.parametrize("block", [block for block in blocks("sh") if not block.not_run], ids=str)
def test_commands_parse(block: Block, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert check_all(block.text), f"{block} has no command"


@pytest.mark.parametrize("line", [
    "python -m ngraph_mxnet bench model.onnx --shapes x=1", "python -m ngraph_mxnet measure model.onnx",
    "python -m ngraph_mxnet run model.onnx --threads many", "NGRAPH_BACKND=CPU python your_script.py",
    "python scripts/bench_peers.py --peer mkldnn", "scripts/gone.sh", "python examples/train_digits.py --backend CPU",
    "scripts/latency.sh --modle resnet50_v1", "pip install '.[benches]'", "pip install ./runtimes", "ngrahp-run x",
    "ngraph-run model.ngraph --times 3", "make -C examples", "pip list && scripts/gone.sh",
])
def test_commands_that_can_not_run_are_found(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(CommandError):
        check_all(line)


def pages_of_python() -> list[Path]:
    return [page for page in PAGES if any(b.page == page and not b.not_run for b in blocks("python"))]


@pytest.mark.parametrize("page", pages_of_python(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_python_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page one after the other, as a reader would type them."""
    own = [block for block in blocks("python") if block.page == page and not block.not_run]
    if any("import ngraph_runtime" in block.text for block in own):
        monkeypatch.syspath_prepend(str(ROOT / "runtime"))
        if not os.environ.get("NGRAPH_RUNTIME_LIBRARY"):
            pytest.skip("NGRAPH_RUNTIME_LIBRARY names no built library")
    reader.write_files(tmp_path)  # its own: pages write files of the same names
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "NGRAPH")
    names = reader.variables(tmp_path)
    for block in own:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile("\n" * (block.line - 1) + block.text, str(block.page), "exec"), names)


def package_commands() -> Iterator[Any]:
    """Each line of `python -m ngraph_mxnet`, or `ngraph-mxnet`, in the blocks that are run."""
    for block in blocks("sh"):
        for words in commands_in(block.text) if not block.not_run else []:
            if "ngraph-mxnet" in words:
                place = words.index("ngraph-mxnet")
                words = [*words[:place], "python", "-m", "ngraph_mxnet", *words[place + 1:]]
            if "ngraph_mxnet" in words:
                yield pytest.param(words, id=f"{block} {words[words.index('ngraph_mxnet') + 1]}")


@pytest.mark.slow
@pytest.mark.parametrize("words", list(package_commands()))
def test_commands_of_the_package_run(words: list[str], folder: Path) -> None:
    if words[-1].endswith((".svg", ".png")) and "runs" in words:
        pytest.importorskip("matplotlib", reason="matplotlib of the extra bench is not installed")
    place = words.index("python")
    assigned = dict(word.split("=", 1) for word in words[:place])
    if any(word.startswith("a=") for word in words):  # the model of this line has two inputs
        words = ["two.onnx" if word == "model.onnx" else word for word in words]
    elif "data.npz" in words:  # as the samples of the page
        words = ["net.onnx" if word == "model.onnx" else word for word in words]
    if "--fail-if-slower" in words:  # here both runs are of the same, on a machine that may be busy
        words = [*words]
        words[words.index("--fail-if-slower") + 1] = "1000"
    done = subprocess.run([sys.executable, *words[place + 1:]], cwd=folder, capture_output=True, text=True, check=False,
                          env={**os.environ, **assigned}, timeout=500)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.parametrize("block", [b for b in blocks("text") if b.text.startswith("graph @")], ids=str)
def test_graphs_are_read(block: Block) -> None:
    assert parse_graph(block.text).results


def test_what_would_not_run_is_found() -> None:
    text = "a\n\n    indented\n\n<!-- not run: it needs a GPU -->\n```sh\nx\n```\n```\ny\n```\n````text\n```\n````\n"
    found = [(block.line, block.language, block.not_run, block.text) for block in blocks_of(ROOT / "x.md", text)]
    assert found == [(3, "indented", "", "    indented"), (7, "sh", "it needs a GPU", "x"), (10, "", "", "y"),
                     (13, "text", "", "```")]
