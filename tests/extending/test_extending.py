"""All that CONTRIBUTING says how to add is added here from outside, and runs: no file of the package knows of it.

Each toy is a module, or a folder, as another distribution would bring it. What it registers ends with the process that
imports it.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import textwrap
from fnmatch import fnmatch
from pathlib import Path

import pytest

import ngraph_mxnet

HERE = Path(__file__).parent
TESTS = HERE.parent
PACKAGE = Path(ngraph_mxnet.__file__).parent
CONTRIBUTING = (TESTS.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
START = """
    import numpy as np
    import ngraph_mxnet
    from ngraph_mxnet.ir import Builder

    images = np.random.default_rng(0).integers(0, 256, (2, 9, 7, 3), dtype="u1")
    tensors = np.moveaxis(images.astype("f4") / 255, -1, 1)

    def net():
        b = Builder(name="net")
        return b.results(b.multiply(b.image_to_tensor(b.parameter("x", images.shape, "u8")), b.constant(2.0)))

    def close(found, wanted):
        np.testing.assert_allclose(found, wanted, 1e-5, 1e-6)
"""


def process(*arguments: str, folders: tuple[Path, ...] = (), **variables: str) -> str:
    """What Python prints, with the package, the toys and `folders` on its path; it must succeed."""
    path = os.pathsep.join(map(str, (*folders, HERE, PACKAGE.parent)))
    environment = {**os.environ, "PYTEST_ADDOPTS": "", **variables,
                   "PYTHONPATH": path + os.pathsep + os.environ.get("PYTHONPATH", "")}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False,
                          cwd=PACKAGE.parent, timeout=500)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
    return done.stdout + done.stderr


def run(script: str, *folders: Path, **variables: str) -> str:
    """What a script prints."""
    return process("-c", textwrap.dedent(START) + textwrap.dedent(script), folders=folders, **variables)


def suite(plugin: str, folder: str, pattern: str, *folders: Path) -> int:
    """How many tests of a shared suite passed that has the plugin's rows; none may fail or be skipped."""
    root = TESTS.parent
    options = ["-q", "-p", plugin, "-p", "no:xdist", "-p", "no:cacheprovider", "-c", str(root / "pyproject.toml")]
    told = process("-m", "pytest", *options, "--rootdir", str(root), "-k", pattern, str(TESTS / folder),
                   folders=(TESTS, TESTS / folder, *folders))
    counts = re.search(r"(\d+) passed(?:, \d+ (?:deselected|warnings?))* in", told)
    assert counts is not None, told
    return int(counts[1])


def installed(folder: Path) -> Path:
    """The toy target as an installer leaves it: the module, and the entry points that its pyproject.toml names."""
    project = (HERE / "toy_target" / "pyproject.toml").read_text()
    name, version = (re.search(rf'^{key} = "(.*)"', project, re.MULTILINE)[1] for key in ("name", "version"))
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    group, points = re.search(r'^\[project.entry-points."(.*)"\]\n((?:\w+ = ".*"\n)+)', project, re.MULTILINE).groups()
    (info / "entry_points.txt").write_text(f"[{group}]\n" + points.replace('"', ""))
    (folder / "toy_target.py").write_text((HERE / "toy_target" / "toy_target.py").read_text())
    return folder


# ---- one toy after the other ------------------------------------------------------------------------------


def test_an_op_runs_on_every_backend() -> None:
    """Its row in the op table brings it into the shared suite: asked once what is refused, and run on five backends."""
    assert suite("toy_rows", "backend", "image_to_tensor") == 6


def test_a_kernel() -> None:
    """It is compiled when a program first calls it, and for every instruction set, as the record says."""
    run("""
        import toy_kernel
        from ngraph_mxnet import _core
        from ngraph_mxnet.targets.cpu.codegen.emit import build_added
        from ngraph_mxnet.targets.cpu.codegen.generator import added_code
        from ngraph_mxnet.targets.cpu.microkernels.variants import ISAS

        for threads in (1, 2):
            found = ngraph_mxnet.compile(net(), "CPU", threads=threads)
            close(found(images)[0], 2 * tensors)
            (text,) = (str(i) for i in found.main.instructions if i.name == "image_to_tensor_u8")
            assert "__" in text and text.endswith(" images=2 channels=3 pixels=63 largest=255.0 tasks=6"), text
        try:
            found.package()  # no other process could run it
        except ngraph_mxnet.NGraphError as error:
            assert "other distributions added" in str(error)
        else:
            raise AssertionError("packed")
        assert all(b"ng_image_to_tensor_f32__" in build_added(["image_to_tensor_f32"], isa) for isa in ISAS)
        try:
            added_code(["relu"], "avx2")
        except KeyError as error:
            assert "no other distribution added it" in str(error)
        else:
            raise AssertionError("a kernel of this package is the kernel library's")
    """)


def test_a_microkernel() -> None:
    run("""
        import toy_microkernel

        x = np.linspace(-3, 3, 96, dtype="f4").reshape(2, 3, 16)
        b = Builder(name="parabola")
        graph = b.results(b.relu(b.parabola(b.relu(b.parameter("x", x.shape)), a=0.5, b=-1.0, c=0.25)))
        found = ngraph_mxnet.compile(graph, "CPU")
        assert "parabola" in [i.name for i in found.main.instructions]
        close(found(x)[0], ngraph_mxnet.compile(graph, "INTERPRETER")(x)[0])
        b = Builder(name="odd")
        try:
            ngraph_mxnet.compile(b.results(b.parabola(b.parameter("x", (5,)), a=1.0, b=0.0, c=0.0)), "CPU")
        except ngraph_mxnet.NGraphError as error:
            assert "its 5 elements are no whole vectors of 16" in str(error)
        else:
            raise AssertionError("refused by its check")
    """)


def test_an_mxnet_rule() -> None:
    """A bound symbol runs it within a region; MXNet runs the same symbol by itself."""
    run("""
        import os
        import mxnet as mx
        import toy_mxnet_rule
        from ngraph_mxnet import _core
        from ngraph_mxnet.program.cache import package_identity
        from ngraph_mxnet.base.registry import this_process

        net = mx.sym.image.to_tensor(mx.sym.var("x"))
        net = mx.sym.Activation(mx.sym.Convolution(net, num_filter=4, kernel=(3, 3), name="conv"), act_type="relu")
        found = []
        for backend in ("", "NGRAPH"):
            os.environ.pop("MXNET_SUBGRAPH_BACKEND", None)
            if backend:
                os.environ["MXNET_SUBGRAPH_BACKEND"] = backend
            executor = net.simple_bind(mx.cpu(), grad_req="null", x=images.shape, type_dict={"x": "uint8"})
            for number, name in enumerate(("conv_weight", "conv_bias")):
                array = executor.arg_dict[name]
                array[:] = np.random.default_rng(number).uniform(-1, 1, array.shape)
            executor.arg_dict["x"][:] = images
            found.append(executor.forward(is_train=False)[0].asnumpy())
        close(*found)
        ((text, *_),) = _core.compiled_regions()
        assert "_image_to_tensor" in text and "Convolution" in text
        assert package_identity().endswith(this_process())  # whoever has no such rule does not find what is kept
    """)
    assert suite("toy_conformance", "conformance", "test_a_few_draws and image_to_tensor") == 3


def test_an_onnx_rule() -> None:
    run("""
        import toy_onnx_rule
        from onnx import TensorProto, helper

        nodes = [helper.make_node("ImageToTensor", ["x"], ["t"], domain="toy", largest=51.0),
                 helper.make_node("Relu", ["t"], ["y"])]
        graph = helper.make_graph(nodes, "net", [helper.make_tensor_value_info("x", TensorProto.UINT8, [2, 9, 7, 3])],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3, 9, 7])])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("toy", 1)])
        for backend in ("CPU", "INTERPRETER"):
            close(ngraph_mxnet.compile(model, backend)(images)[0], 5 * tensors)
    """)


def test_a_pass() -> None:
    """Its golden, and its results; a target's pipeline has it (`test_a_target`)."""
    run(f"""
        from pass_helpers import check_passes
        from pathlib import Path
        from toy_pass import toy_pass
        from ngraph_mxnet.ir import parse_graph, print_graph

        before, separator, after = Path({str(HERE / "toy_pass.ngraph")!r}).read_text().partition("after\\n")
        made = toy_pass()
        found = print_graph(check_passes(parse_graph(before), made))
        assert found == after, found
        assert [miss.reason for miss in made.misses] == ["something else reads the tensor as it is"]
    """, TESTS / "passes")


def test_a_target(tmp_path: Path) -> None:
    """By its entry point: HYBRID places on it what it is quick at."""
    run("""
        import toy_kernel
        from ngraph_mxnet.ir import count_ops
        from ngraph_mxnet.program.backend import backends

        assert "TOY" in backends()
        b = Builder(name="net")
        x = b.exp(b.image_to_tensor(b.parameter("x", images.shape, "u8")))
        found = ngraph_mxnet.compile(b.results(x), "HYBRID", devices="CPU,TOY")
        assert {node.op: node.device for node in found.plan.nodes} == {
            "image_to_tensor": "TOY", "exp": "CPU"}
        close(found(images)[0], np.exp(tensors))
        found = ngraph_mxnet.compile(net(), "toy")
        assert count_ops(found.graph.nodes) == {"image_to_tensor": 1}  # the toy pass ran
        close(found(images)[0], 2 * tensors)
    """, installed(tmp_path))


def test_a_target_in_the_shared_suite(tmp_path: Path) -> None:
    """All op records, random graphs, refusals: as for the targets of this package."""
    assert suite("toy_rows", "backend", "TOY", installed(tmp_path)) > 200


def test_a_device() -> None:
    run(f"""
        from pathlib import Path
        import toy_op
        from ngraph_mxnet.targets.nnp.device import add_devices, devices, load_device

        add_devices(Path({str(HERE / "toy_devices")!r}))
        device = load_device("toy-1")
        assert (device.name, device.engines, devices()["toy-1"]) == ("toy-1:5W", 4, ("5W",))
        found = ngraph_mxnet.compile(net(), "NNP:toy-1")
        np.testing.assert_allclose(found(images)[0], 2 * tensors, 4e-3, 1e-3)
        assert found.simulated_seconds() > ngraph_mxnet.compile(net(), "NNP").simulated_seconds()
        try:
            add_devices(Path({str(HERE / "toy_devices")!r}))
        except ngraph_mxnet.NGraphError as error:
            assert "toy-1.json" in str(error)
        else:
            raise AssertionError("a name that is taken")
    """)


def test_nothing_of_this_package_is_from_outside() -> None:
    """Or processes would not find what others keep on disk."""
    run("""
        import ngraph_mxnet.targets.cpu.lower, ngraph_mxnet.targets.cpu.kernels
        import ngraph_mxnet.frontends.mxnet.rules, ngraph_mxnet.frontends.onnx.rules
        from ngraph_mxnet.base import registry
        assert registry.outside_build() == ""
    """)


def test_a_kind_of_model(tmp_path: Path) -> None:
    """An object of the kind is taken in place of a model."""
    print(run(f"""
        from toy_model import MatrixModel

        matrix, x = np.arange(12, dtype="f4").reshape(3, 4), np.ones((2, 4), "f4")
        close(ngraph_mxnet.compile(MatrixModel(matrix), "CPU", shapes={{"x": (2, 4)}})(x)[0], x @ matrix.T)
        close(ngraph_mxnet.compile(MatrixModel(matrix), "CPU", shapes={{"x": ("1..8", 4)}})(x)[0], x @ matrix.T)
        assert ngraph_mxnet.verify(MatrixModel(matrix), shapes={{"x": (2, 4)}}).agrees
        ngraph_mxnet.export(MatrixModel(matrix), {str(tmp_path / "matrix.ngraph")!r}, x=(2, 4))
        close(ngraph_mxnet.compile({str(tmp_path / "matrix.ngraph")!r}, "CPU")(x)[0], x @ matrix.T)
        for wrong in (dict(weights={{"w": matrix}}), dict(dtypes={{"x": "f4"}})):
            try:
                ngraph_mxnet.compile(MatrixModel(matrix), "CPU", **wrong)
            except ngraph_mxnet.NGraphError as error:
                assert "linear maps hold their own" in str(error), error
    """))


# ---- how little it takes ----------------------------------------------------------------------------------


def blocks(name: str) -> list[str]:
    """The functions and classes of a toy."""
    tree = ast.parse((HERE / name).read_text())
    return [node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]


def test_an_op_is_one_block_and_a_rule_one_function() -> None:
    assert blocks("toy_op.py") == ["image_to_tensor", "_"]  # the type rule, and what it means
    assert [len(blocks(f"toy_{bridge}_rule.py")) for bridge in ("mxnet", "onnx")] == [1, 1]


def test_an_elementwise_op_is_one_row_and_its_rules() -> None:
    package = [path.relative_to(PACKAGE).as_posix() for path in sorted(PACKAGE.rglob("*.py"))
               if re.search(r"\bacosh\b", path.read_text(encoding="utf-8"))]
    assert package == ["frontends/mxnet/rules/elementwise.py", "frontends/onnx/rules/elementwise.py",
                       "frontends/onnx/writer/elementwise.py", "ops/elementwise.py"]


def test_a_row_makes_all_kernels_generated_code_and_gradient() -> None:
    """The library that is there was built without the row: so the kernel is only compiled, and codegen runs it."""
    run("""
        from ngraph_mxnet.ops import elementwise as rows

        rows._row("mish", "f", rows.TRANSCENDENTAL | {"step": 23}, "x tanh(log(1 + e^x))",
                  lambda m: lambda x: x * m.tanh(m.softplus(x)),
                  lambda x, y: y / x + x * x.sigmoid() * (1.0 - (y / x).square()))

        from ngraph_mxnet.autodiff import differentiate
        from ngraph_mxnet.targets.cpu.aot import emit_object
        from ngraph_mxnet.targets.cpu.params.strided import CHAIN_STEPS, EXPRESSIONS, WIDE_CODES

        assert CHAIN_STEPS["mish"] == 23 and EXPRESSIONS["mish"] == ("f32 f32", "")
        assert WIDE_CODES["unary_f64"]["mish"] == 1 + WIDE_CODES["unary_f64"]["trunc"]
        assert b"ng_mish__baseline" in emit_object("baseline", ["mish"])

        x = np.linspace(-3, 3, 60).astype("f4")
        wanted = x * np.tanh(np.logaddexp(x, 0))
        b = Builder(name="net")
        graph = b.results(b.add(b.mish(b.parameter("x", x.shape)), b.constant(1.0)))
        made = ngraph_mxnet.compile(graph, "CPU", codegen=1)
        assert "ng_generated_0" in str([*made.main.instructions]), made.main.instructions
        close(made(x)[0], wanted + 1)
        close(ngraph_mxnet.compile(graph, "INTERPRETER")(x)[0], wanted + 1)
        gradient = ngraph_mxnet.compile(differentiate(graph, ["x"]).graph, "INTERPRETER")(x, np.ones_like(x))[1]
        slope = np.gradient(wanted.astype(float), x.astype(float))
        np.testing.assert_allclose(gradient[1:-1], slope[1:-1], atol=5e-3)
    """)


def test_toys_use_public_names_only() -> None:
    for path in HERE.rglob("toy_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ngraph_mxnet"):
                assert not [alias.name for alias in node.names if alias.name.startswith("_")], path.name


# ---- the guide --------------------------------------------------------------------------------------------

SECTIONS = {"op": "toy_op.py", "pass": "toy_pass.py", "kernel": "toy_kernel.py", "microkernel": "toy_microkernel.py",
            "backend": "toy_target", "device": "toy_devices", "rule for an MXNet operator": "toy_mxnet_rule.py",
            "rule for an ONNX operator": "toy_onnx_rule.py", "kind of model": "toy_model.py"}
"""What the guide says how to add, and the toy that does."""


def section(what: str) -> str:
    """The text under a heading."""
    return re.search(rf"^## To add an? {re.escape(what)}\n(.*?)(?=^## |\Z)", CONTRIBUTING, re.DOTALL | re.MULTILINE)[1]


def test_every_section_has_a_toy() -> None:
    assert set(re.findall(r"^## To add an? (.*)$", CONTRIBUTING, re.MULTILINE)) == SECTIONS.keys()
    for what, toy in SECTIONS.items():
        assert (HERE / toy).exists() and f"tests/extending/{toy}" in section(what), what


def test_the_guide_shows_the_toys_entry_point() -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", section("backend"), re.DOTALL)
    assert block in (HERE / "toy_target" / "pyproject.toml").read_text()


WITNESSES = {"op": "adaptive_avg_pool", "pass": "default_bias", "kernel": "element_positions",
             "microkernel": "depthwise3x3_s", "rule for an MXNet operator": "khatri_rao",
             "rule for an ONNX operator": "MelWeightMatrix", "backend": "HybridBackend", "device": "nnp-i-1150",
             "kind of model": "OnnxModel"}
"""One of each that is there, by a word that the files which know of it have."""


def needed_sections(what: str) -> str:
    """An op comes with rules and maybe a kernel."""
    whats = {"op": ("op", "kernel", "rule for an MXNet operator", "rule for an ONNX operator")}.get(what, (what,))
    return "".join(map(section, whats))


@pytest.mark.parametrize("what", WITNESSES)
def test_the_guide_names_every_file_that_knows_of_one(what: str) -> None:
    """Or whoever follows it has forgotten one. The backend's own tests aside, which are as it is."""
    patterns = [re.sub(r"<\w+>", "*", path) for path in re.findall(r"`([\w./<>*-]+)`", needed_sections(what))]
    word = re.compile(rf"\b{re.escape(WITNESSES[what])}")
    root, found = TESTS.parent, []
    folders = ["ngraph_mxnet", "csrc", "scripts", *(["tests"] if what != "backend" else [])]
    for path in (path for folder in folders for path in (root / folder).rglob("*.*")):
        name = path.relative_to(root).as_posix()
        if path.suffix in (".py", ".json", ".cc", ".h", ".ngraph", ".txt") and "tests/extending" not in name and (
                word.search(path.read_text(encoding="utf-8")) or path.stem == WITNESSES[what]):
            found.append(name)
    own = ["ngraph_mxnet/targets/hybrid/backend.py"] if what == "backend" else []
    unnamed = [name for name in found if not any(fnmatch(name, pattern) or fnmatch(name, f"*/{pattern}")
                                                 for pattern in (*patterns, *own))]
    assert found and not unnamed, f"the guide to add {what} does not name {', '.join(unnamed)}"


def test_the_layout_names_every_room() -> None:
    found = [path for path in (TESTS.parent / "ngraph_mxnet").iterdir() if path.name != "__pycache__"]
    folders = {str(path.relative_to(TESTS.parent)) for path in found if path.is_dir()}
    assert folders <= set(re.findall(r"^\| `([\w/]+)` ", CONTRIBUTING, re.MULTILINE))
