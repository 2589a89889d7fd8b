"""All checks, in the order in which their findings are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ngraph_mxnet.doctor import machine, settings, software
from ngraph_mxnet.doctor.finding import Finding
from ngraph_mxnet.doctor.trial import try_everything


def examine(imports: Sequence[str] = ()) -> list[Finding]:
    """`imports`: modules that the self-test's process imports before all else."""
    return [_checked(name, check) for name, check in _checks(imports)]


def _checks(imports: Sequence[str]) -> Iterator[tuple[str, Callable[[], Finding]]]:
    yield "installation", software.installation
    yield "processor", machine.processor
    yield "threads", machine.threads
    yield "settings", settings.settings
    yield "cache", settings.cache
    yield "libraries", software.libraries
    trial = try_everything(imports)
    yield "numpy", partial(software.numpy, trial)
    yield "mxnet", partial(software.mxnet, trial)
    yield "openmp", partial(software.openmp, trial)
    yield "self-test", partial(software.self_test, trial)


def _checked(name: str, check: Callable[[], Finding]) -> Finding:
    """Whatever is broken, all other checks are made."""
    try:
        return check()
    except Exception as error:
        return Finding(name, problems=(f"the check itself failed: {type(error).__name__}: {error}",))
