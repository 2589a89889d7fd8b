#!/usr/bin/env bash
# Run all checks against the installed package, set-up included: ruff, mypy, shellcheck where there is one, pytest.
#     scripts/test.sh [pytest's options and paths]        scripts/test.sh tests/ir -k parse
# Needs Python 3.10 to 3.12 (PYTHON overrides the choice) and g++. Everything is installed into .venv-test.
set -euo pipefail
# shellcheck source=scripts/venv.sh
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

unset PYTHONPATH PYTHONHOME MXNET_SUBGRAPH_BACKEND
ensure_venv .venv-test '[test,examples]' foolbox==3.3.4
need_installed_package

cd "$root"
say "ruff"
"$venv/bin/python" -m ruff check .
say "mypy"
"$venv/bin/python" -m mypy
if command -v shellcheck >/dev/null; then
    say "shellcheck"
    shellcheck -x scripts/*.sh .ci/run
fi

# pytest runs in tests/, where no folder ngraph_mxnet can hide the installed package, also in tests that start
# processes. Paths among the arguments are relative to the checkout or to where the script was called.
arguments=()
has_path=false
for argument in "$@"; do
    if [[ $argument != -* && -e $root/${argument%%::*} ]]; then
        argument=$root/$argument
        has_path=true
    fi
    arguments+=("$argument")
done
$has_path || arguments+=("$root/tests")
say "pytest"
cd "$root/tests"
exec "$venv/bin/python" -m pytest -c "$root/pyproject.toml" --rootdir "$root" "${arguments[@]}"
