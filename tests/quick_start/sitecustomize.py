"""Starts the processes of tests sooner: `import mxnet` takes half of its time.

It finds no scikit-learn and none of SciPy's statistics, of which it takes the base class of an old model and a
calibration that no such process asks for. Every other import finds them. The functions that it writes for its operators
are compiled once for all processes: they differ in nothing but the operator's address.
"""

import os
import sys

FOLDER = os.environ.get("TESTS_COMPILED")


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in ("sklearn", "scipy.stats") and is_loading("mxnet"):
            raise ModuleNotFoundError(f"{name} is not loaded for MXNet", name=name)
        if name not in ("mxnet.ndarray.register", "mxnet.symbol.register") or not FOLDER:
            return None
        spec = path_finder.find_spec(name, path, target)
        stock, compiled = spec.loader.exec_module, Compiled(f"{FOLDER}/{name}.{sys.implementation.cache_tag}")

        def exec_module(module):
            module.exec = compiled.exec
            stock(module)

        spec.loader.exec_module = exec_module
        return spec


def is_loading(name):
    return getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False)


class Compiled:
    """Code by its source, in which the operator's address is left out, with the address that the code has."""

    def __init__(self, path):
        import atexit
        import marshal

        self.path, self.dump = path, marshal.dumps
        try:
            with open(path, "rb") as file:
                self.codes = marshal.load(file)
        except OSError:  # no process has ended yet
            self.codes = {}
            atexit.register(self.save)

    def exec(self, source, _, names):
        caller = sys._getframe(1)
        address = caller.f_locals["handle"].value
        key = source.replace(str(address), "@")
        code, old = self.codes.get(key, (None, address))
        if code is None:
            self.codes[key] = code, _ = compile(source, "<string>", "exec"), address
        exec(with_address(code, old, address), caller.f_globals, names)

    def save(self):
        try:
            with open(f"{self.path}.{os.getpid()}", "wb") as file:
                file.write(self.dump(self.codes))
            os.replace(file.name, self.path)
        except OSError:  # the tests have ended
            pass


def with_address(code, old, new):
    return code.replace(co_consts=tuple(
        with_address(each, old, new) if isinstance(each, type(code)) else new if each == old else each
        for each in code.co_consts))


(path_finder,) = (finder for finder in sys.meta_path if getattr(finder, "__name__", "") == "PathFinder")
sys.meta_path.insert(sys.meta_path.index(path_finder), Finder)
