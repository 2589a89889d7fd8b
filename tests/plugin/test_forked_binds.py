"""Forks of a process in which MXNet's engine runs our op, or another thread compiles a region.

Not: forks while other threads give MXNet work. There MXNet alone hangs or crashes; see docs/limits.md.
"""

from __future__ import annotations

import pytest
from mxnet_helpers import needs_library, run_script

pytestmark = needs_library

PRELUDE = """
import gc, os, signal, sys, threading, time
import mxnet as mx
import numpy as np
from ngraph_mxnet import _core
from ngraph_mxnet.plugin import callbacks
signal.alarm(120)
x = mx.sym.Variable("x")
symbol = mx.sym.FullyConnected(mx.sym.Activation(x, act_type="relu"), num_hidden=300, no_bias=True, name="dense")

def bound():
    executor = symbol.simple_bind(mx.cpu(), grad_req="null", x=(64, 300))
    executor.arg_dict["x"][:] = 1
    executor.arg_dict["dense_weight"][:] = 1
    return executor

def right(executor):
    return (executor.forward()[0].asnumpy() == 300).all()

def forked(body):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        code = 9
        try:
            code = 0 if body() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""

SCRIPTS = {
    "the engine runs": """
executor = bound()
assert right(executor)
codes = []
for _ in range(5):
    for _ in range(50):
        executor.forward()
    codes.append(forked(lambda: right(executor) and right(bound())))
    assert right(executor)
print(set(codes) == {0})
""",
    "another thread compiles": """
parent, entered, leave, stock = os.getpid(), threading.Event(), threading.Event(), callbacks._compile
def slow(*arguments):
    if os.getpid() == parent:
        entered.set()
        leave.wait()
    return stock(*arguments)
callbacks._compile = slow
@callbacks.collector_paused
def body():
    assert right(bound())
other = threading.Thread(target=body)
other.start()
entered.wait()
code = forked(lambda: gc.isenabled() and right(bound()))
leave.set()
other.join()
print(code == 0 and gc.isenabled() and right(bound()))
""",
}


@pytest.mark.parametrize("what", SCRIPTS)
def test_while(what, tmp_path):
    done = run_script(PRELUDE + SCRIPTS[what], tmp_path, "NGRAPH", MXNET_SUBGRAPH_VERBOSE="0")
    assert done.stdout.split() == ["True"], (done.returncode, done.stderr[-3000:])


@pytest.mark.parametrize("name", ["INTERPRETER", "NNP", "HYBRID"])
def test_while_the_engine_runs_regions_that_need_python(name, tmp_path):
    """The forking thread has the GIL, and MXNet makes it wait for the engine's."""
    done = run_script(PRELUDE + SCRIPTS["the engine runs"].replace("range(5)", "range(2)").replace("50", "5"), tmp_path,
                      "NGRAPH", MXNET_SUBGRAPH_VERBOSE="0", NGRAPH_BACKEND=name)
    assert done.stdout.split() == ["True"], (done.returncode, done.stderr[-3000:])
