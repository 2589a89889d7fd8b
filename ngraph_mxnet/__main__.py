"""The command line: `ngraph-mxnet`, or `python -m ngraph_mxnet`, which is the same."""

from __future__ import annotations

import importlib.util
import sys

from ngraph_mxnet.base import config
from ngraph_mxnet.base.installation import missing_part

MODULE, SCRIPT = "python -m ngraph_mxnet", "ngraph-mxnet"
_TELLS_WHAT_IS_MISSING = "doctor"


def main(name: str = SCRIPT) -> None:
    """Run the command that the process's arguments name, which ends the process.

    Args:
        name: what the help calls the program.
    """
    told = sys.argv[1:2] == [_TELLS_WHAT_IS_MISSING] and importlib.util.find_spec("click") is not None
    problem = None if told else missing_part()
    if problem is not None:
        sys.exit(f"Error: {problem}")
    config.not_allowed()  # the command tells it as an error, and need not be warned of it
    from ngraph_mxnet.tools.cli.commands import main as commands

    commands(prog_name=name)


if __name__ == "__main__":
    main(MODULE)
