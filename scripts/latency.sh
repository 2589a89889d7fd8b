#!/usr/bin/env bash
# Measure inference latency on this machine, set-up included: first the tutorial's script unchanged under NGRAPH
# (on standard error), then NGRAPH, NONE and MKLDNN side by side. Options go to compare_backends.py:
#     scripts/latency.sh [--model resnet50_v2] [--batch 1] [--threads N] [--rounds 15] [--burst 10] [--json]
# The first run takes about ten minutes on two quiet cores, of which six compile the package.
# Needs Python 3.10 to 3.12 (PYTHON overrides the choice) and g++. Everything is installed into .venv-latency,
# compiled models are kept there too: nothing outside the checkout is written but pip's cache of downloads.
set -euo pipefail
# shellcheck source=scripts/venv.sh
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

show_help "$@"
unset PYTHONPATH PYTHONHOME
ensure_venv .venv-latency '[mxnet]'
need_installed_package
export NGRAPH_CACHE_DIR=${NGRAPH_CACHE_DIR:-$venv/cache}

say "examples/resnet50_latency.py with MXNET_SUBGRAPH_BACKEND=NGRAPH"
MXNET_SUBGRAPH_BACKEND=NGRAPH "$venv/bin/python" "$root/examples/resnet50_latency.py" >&2
say "the backends side by side"
# Equal threads: unset, MXNet's operators run on one thread and ours on every core. An option later wins.
"$venv/bin/python" "$root/scripts/compare_backends.py" --threads "${OMP_NUM_THREADS:-$(nproc)}" "$@"
