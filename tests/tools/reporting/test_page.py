"""The page: whole, alone, and as data says; in a browser where there is one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ngraph_mxnet.ir import parse_graph
from ngraph_mxnet.program.backend import get_backend
from ngraph_mxnet.program.executable import Executable
from ngraph_mxnet.tools.reporting import Subject, collect, page

GRAPH = """
graph @net(%x: f32[1,16,8,8], %w: f32[32,16,3,3] weight) -> (f32[1,32,6,6]) {
  %0: f32[1,32,6,6] = convolution(%x, %w)   # mx:net_a_conv Convolution
  %1: f32[1,32,6,6] = relu(%0)              # mx:net_a_relu Activation
  %2: f32[1,32,6,6] = tanh(%1)              # mx:net_b_tanh Activation
  %3: f32[1,32,6,6] = sigmoid(%2)           # mx:net_b_sigmoid Activation
  %4: f32[1,32,6,6] = add(%3, %1)           # mx:net_c_add _Plus
  return %4
}
"""


def arrays(executable: Executable) -> dict[str, np.ndarray]:
    return {port.name: np.ones(port.type.shape, port.type.element.numpy) for port in executable.inputs}


def collected(backend: str = "CPU", *, title: str = "net", rounds: int = 1, verified: bool = False,
              settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    weights = {"w": np.full((32, 16, 3, 3), 0.01, np.float32)}
    subject = Subject(title, parse_graph(GRAPH), weights, ["A note."])
    return collect(subject, get_backend(backend), settings or {}, arrays, rounds=rounds, verified=verified)


class Reader(HTMLParser):
    """Ids, what refers to ids, scripts by type, and attributes that load something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.references: set[str] = set()
        self.loads: list[str] = []
        self.scripts: dict[str, str] = {}
        self._script: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids += [given["id"]] if "id" in given else []
        for name in ("for", "aria-controls", "aria-describedby", "aria-labelledby"):
            self.references.update(given.get(name, "").split())
        if given.get("href", "").startswith("#"):
            self.references.add(given["href"][1:])
        self.loads += [given[name] for name in ("src", "href", "action") if name in given and given[name][:1] != "#"]
        self._script = given.get("type", "text/javascript") if tag == "script" else None

    def handle_endtag(self, tag: str) -> None:
        self._script = None

    def handle_data(self, data: str) -> None:
        if self._script is not None:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data


def test_the_page_needs_nothing_beside_it() -> None:
    text = page(collected())
    found = Reader(text)
    assert not found.loads
    assert set(re.findall(r"https?://[^\s\"'<]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"@import|url\(|\bfetch\(|XMLHttpRequest|import\(", text)


def test_every_id_is_there_once() -> None:
    found = Reader(page(collected()))
    assert len(found.ids) == len(set(found.ids))
    used = set(re.findall(r'byId\("([\w-]+)"\)', found.scripts["text/javascript"]))
    made = set(re.findall(r'\bid: "([\w-]+)"', found.scripts["text/javascript"]))
    assert len(used) > 12 and used | found.references <= {*found.ids, *made}
    tabs = re.search(r"const TABS = \{(.*?)\}", found.scripts["text/javascript"], re.DOTALL)
    assert tabs and set(re.findall(r"(\w+): \"", tabs.group(1))) <= set(found.ids)


def test_names_can_not_break_out_of_the_data() -> None:
    title = '</script><script>alert("x")</script><!-- & \u2028'
    text = page(collected(title=title))
    found = Reader(text)
    assert json.loads(found.scripts["application/json"])["title"] == title
    assert list(found.scripts) == ["application/json", "text/javascript"] and "<script>alert" not in text


def test_numbers_that_are_not_finite_are_null() -> None:
    data = {**collected(rounds=0), "accuracy": {"rows": [{"difference": float("nan"), "largest": float("inf")}]}}
    read = json.loads(Reader(page(data)).scripts["application/json"])
    assert read["accuracy"]["rows"] == [{"difference": None, "largest": None}]


def test_the_data_fits_together() -> None:
    data = collected(verified=True)
    graph, count = data["graph"], len(data["graph"]["nodes"])
    assert all(0 <= a < b < count and 0 <= kind < len(graph["types"]) for a, b, kind in graph["edges"])
    assert all(-1 <= node.get("scope", -1) < len(graph["scopes"]) for node in graph["nodes"])
    assert graph["nodes"][0]["kind"] == "input" and graph["nodes"][-1]["kind"] == "result"
    assert any("blocked" in node.get("layout", "") for node in graph["nodes"])
    keys = {f"{node['op']} ({node['origin']})" for node in graph["nodes"] if node.get("origin")}
    assert {row["origin"] for row in data["kernels"]["rows"]} <= {*keys, "result"}
    assert all(0 <= call[0] < count and call[2] < data["memory"]["levels"] for call in data["calls"])
    assert {event[5] for event in data["timeline"]["rows"]} >= {"kernel"} and data["timeline"]["engines"] == []
    (row,) = data["accuracy"]["rows"]
    assert row["agrees"] and row["share"] < 1e-5 and row["reference"]["norm"] > 0


def test_buffers_in_use_at_once_do_not_overlap() -> None:
    memory = collected(rounds=0)["memory"]
    buffers = [(offset, offset + size, first, last) for offset, size, first, last, _ in memory["buffers"]]
    assert len(buffers) > 1 and all(end <= memory["arena"] for _, end, _, _ in buffers)
    for number, (begin, end, first, last) in enumerate(buffers):
        for other_begin, other_end, other_first, other_last in buffers[:number]:
            assert end <= other_begin or other_end <= begin or last < other_first or other_last < first


@pytest.mark.parametrize("backend", ["INTERPRETER", "NNP", "HYBRID"])
def test_what_a_backend_can_not_tell_is_said(backend: str) -> None:
    data = collected(backend)
    assert "does not tell how it plans memory" in data["memory"] and "Not measured: " in data["kernels"]
    assert isinstance(data["timeline"], dict) == (backend == "NNP")
    for row in data["timeline"]["engines"] if backend == "NNP" else []:
        assert sum(value for name, value in row.items() if name != "engine") == pytest.approx(1)
    assert ("plan" in data["placement"]) == (backend == "HYBRID")
    page(data)


def test_nothing_runs_without_rounds() -> None:
    data = collected(rounds=0, verified=True, settings={"threads": 1})
    assert all("--rounds is 0" in data[part] for part in ("kernels", "timeline", "accuracy"))
    assert "--verify" in collected(rounds=0)["accuracy"]


# ---- in a browser ------------------------------------------------------------------------------------------

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
in_browser = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
PROBE = """
<script>
const errors = [];
window.addEventListener("error", (event) => errors.push(event.message));
window.addEventListener("load", () => {
  const key = (name, target = document.activeElement) =>
    target.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true }));
  const results = {}, items = () => [...document.querySelectorAll("#drawing .item")];
  results.closed = items().length;
  document.getElementById("expand").click();
  results.open = items().length;
  results.overlaps = items().filter((one, i) => items().slice(0, i).some((other) => {
    const [a, b] = [one, other].map((item) => item.querySelector("rect.box").getBoundingClientRect());
    return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  })).length;
  results.cutText = items().filter((item) => [...item.querySelectorAll("text")].some((text) =>
    text.getBBox().width + text.getBBox().x > item.querySelector("rect.box").getBBox().width + 1 &&
    text.getAttribute("text-anchor") !== "end")).length;
  key("/", document.body);
  const search = document.getElementById("search");
  results.slash = document.activeElement === search;
  search.value = "tanh";
  search.dispatchEvent(new Event("input"));
  results.found = document.getElementById("matches").textContent;
  key("Enter");
  results.details = document.getElementById("details").textContent;
  key("Escape");
  results.cleared = search.value === "";
  items()[0].focus();
  document.querySelector("#drawing .item[tabindex='0']").focus();
  const before = document.querySelector(".item.chosen")?.dataset.place;
  key("ArrowUp");
  results.moved = document.querySelector(".item.chosen")?.dataset.place !== before;
  const drawing = document.getElementById("drawing"), at = () => drawing.querySelector("g").style.transform;
  const pointer = (type, x) => drawing.dispatchEvent(
    new PointerEvent(type, { pointerId: 1, clientX: x, clientY: 300, bubbles: true }));
  const places = [at()];
  drawing.dispatchEvent(new WheelEvent("wheel", { deltaY: -200, clientX: 400, clientY: 300, cancelable: true }));
  places.push(at());
  document.getElementById("out").click();
  places.push(at());
  const chosen = () => document.querySelector(".item.chosen").dataset.place;
  const clicked = items().find((item) => item.dataset.place !== chosen());
  pointer("pointerdown", 400);
  pointer("pointermove", 460);
  pointer("pointerup", 460);
  places.push(at());
  clicked.dispatchEvent(new MouseEvent("click", { bubbles: true }));
  results.clickAfterDrag = chosen() === clicked.dataset.place;
  pointer("pointerdown", 400);
  pointer("pointerup", 400);
  clicked.dispatchEvent(new MouseEvent("click", { bubbles: true }));
  results.click = chosen() === clicked.dataset.place;
  results.places = new Set(places).size;
  const colour = document.getElementById("colour");
  const fills = () => items().map((item) => item.querySelector("rect.box").getAttribute("fill")).join();
  results.colours = [...colour.options].map((option) => {
    colour.value = option.value;
    colour.dispatchEvent(new Event("change"));
    return [fills(), document.getElementById("legend").textContent];
  });
  results.named = items().every((item) => item.getAttribute("aria-label"));
  results.tabs = [...document.querySelectorAll("#tabs button")].map((tab) => {
    tab.click();
    return [tab.textContent, document.querySelector("main > section:not([hidden])").children.length];
  });
  results.errors = errors;
  const out = document.createElement("pre");
  out.id = "results";
  out.textContent = JSON.stringify(results);
  document.body.append(out);
});
</script>
"""


def opened(path: Path) -> str:
    """The document as Chromium has it when all scripts have run."""
    assert CHROMIUM is not None
    done = subprocess.run([CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1200,800",
                           f"--user-data-dir={path.parent / 'profile'}", "--dump-dom", path.as_uri()],
                          capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@in_browser
def test_the_page_in_a_browser(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page(collected(verified=True)).replace("<body>", f"<body>{PROBE}"))
    found = re.search(r'<pre id="results">(.*?)</pre>', opened(path), re.DOTALL)
    assert found
    results = json.loads(found.group(1).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    assert results["errors"] == []
    assert results["open"] >= results["closed"] > 2 and results["overlaps"] == results["cutText"] == 0
    assert results["slash"] and results["found"].startswith("1 found") and results["cleared"]
    assert "tanh" in results["details"] and "Kernel calls" in results["details"]
    assert results["moved"] and results["named"]
    assert results["places"] == 4 and results["click"] and not results["clickAfterDrag"]
    fills, legends = zip(*results["colours"], strict=True)  # by kind, time and layout: there are no devices
    assert len(set(fills)) == len(set(legends)) == 3
    assert len(results["tabs"]) == 7 and all(children > 1 for _, children in results["tabs"])


@in_browser
def test_a_large_graph_is_quick(tmp_path: Path) -> None:
    """1000 nodes in blocks are ready within two seconds, and below 5 MB."""
    lines = [f"  %{n}: f32[8,64] = {'tanh' if n % 2 else 'sigmoid'}(%{n - 1 if n else 'x'})"
             f"  # mx:net_block{n // 50}_layer{n // 10}_node{n} Activation" for n in range(1000)]
    graph = parse_graph("graph @deep(%x: f32[8,64]) -> (f32[8,64]) {\n" + "\n".join(lines) + "\n  return %999\n}\n")
    text = page(collect(Subject("deep", graph, {}), get_backend("INTERPRETER"), {}, arrays, rounds=0, verified=False))
    path = tmp_path / "deep.html"
    path.write_text(text)
    ready = re.search(r'data-ready="(\d+)"', opened(path))
    assert ready and int(ready.group(1)) < 2000 and len(text) < 5e6
