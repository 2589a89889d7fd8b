"""Starts the processes of tests sooner: `import mxnet` finds no scikit-learn and none of SciPy's statistics.

Where they are installed, they would take a third of its time, for the base class of an old model and for a calibration
that no such process asks for. Every other import finds them.
"""

import sys


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in ("sklearn", "scipy.stats") and is_loading("mxnet"):
            raise ModuleNotFoundError(f"{name} is not loaded for MXNet", name=name)


def is_loading(name):
    return getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False)


sys.meta_path.insert(0, Finder)
