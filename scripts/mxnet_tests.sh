#!/usr/bin/env bash
# Run MXNet 1.9.1's own unit tests with and without NGRAPH, set-up included, and print a table of files and every
# difference; a third run compiles training, too, a fourth compares each compiled inference with MXNet's operators, a fifth
# each training step as well.
#     scripts/mxnet_tests.sh CHECKOUT [--files test_executor,test_module] [--ways alone,ngraph,trained,compared,stepped]
#                            [--limit 3600] [--seed 7] [-k EXPRESSION] [--json FILE]
# CHECKOUT is any clone of apache/mxnet at the tag 1.9.1; nothing is written there. All files take hours.
# Needs Python 3.10 or 3.11 (PYTHON overrides the choice), for which there is a NumPy of MXNet's time, and g++.
# Everything is installed into .venv-mxnet-tests.
set -euo pipefail
# shellcheck source=scripts/venv.sh
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

show_help "$@"
unset PYTHONPATH PYTHONHOME MXNET_SUBGRAPH_BACKEND
ensure_venv .venv-mxnet-tests '[mxnet]'
need_installed_package
if [[ ! -e $venv/packages ]]; then
    say "installing what MXNet's tests need"
    install "$venv/setup.log" numpy==1.23.5 'scipy<1.12' pynose pytest
    touch "$venv/packages"
fi
exec "$venv/bin/python" "$root/scripts/mxnet_tests.py" "$@"
