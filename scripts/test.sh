#!/usr/bin/env bash
# Run all checks against the installed package, set-up included: ruff, mypy, shellcheck where there is one, the site of the
# documentation (into build/site), pytest.
#     scripts/test.sh [--slow-lane] [pytest's options and paths]        scripts/test.sh tests/ir -k parse
# The first run takes some 22 minutes on two quiet cores, of which eight compile the package. Without paths, files
# of tests run in as many processes as there are cores, at most four; --numprocesses 0 runs one after the other.
# --slow-lane, afterwards: the whole ONNX suite, AVX-512 under emulation, Gluon's zoo, NumPy's versions, MXNet's models
# without MXNet (Python 3.13 and 3.14), the wheel for other machines, mutants of files and random models of a seed that
# changes by commit (FUZZ_SEED overrides it), another Python, and the runtime's wheel in fresh environments of all Pythons
# from 3.8 on that are at hand.
# The batch of the zoo and the other Python change from day to day; SLOW_LANE_TURN=N runs those of day N of the year.
# Needs Python 3.10 to 3.12 (PYTHON overrides the choice) and g++. Everything is installed into .venv-test: nothing
# outside the checkout is written but pip's cache of downloads.
set -euo pipefail
# shellcheck source=scripts/venv.sh
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

show_help "$@"
slow_lane=false
if [[ ${1:-} == --slow-lane ]]; then
    slow_lane=true
    shift
fi
unset PYTHONPATH PYTHONHOME MXNET_SUBGRAPH_BACKEND
ensure_venv .venv-test '[test,examples,docs]' foolbox==3.3.4
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

say "the runtime library"
export PATH=$venv/bin:$PATH
cmake -S runtime -B build/runtime -G Ninja -DPython_EXECUTABLE="$venv/bin/python" -DNGRAPH_KERNEL_FOLDER="$kernels" \
    >/dev/null
cmake --build build/runtime >/dev/null
export NGRAPH_RUNTIME_LIBRARY=$root/build/runtime/libngraph_runtime.so

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
if ! $has_path; then
    # Files in turns on several processes: most tests keep one core busy, compiling. Threads of graphs want the others.
    processes=$(nproc)
    arguments=(--numprocesses "$((processes < 4 ? processes : 4))" --dist loadfile --max-worker-restart 0
        --durations 40 "${arguments[@]}" "$root/tests")
fi
cd "$root/tests"
# What the build made must work here: what only its lack would skip fails (tests/conftest.py). -rs tells what is skipped
# for other reasons.
export TESTS_REQUIRE_LIBRARY=1
say "docs"
"$venv/bin/python" -m sphinx -W --keep-going -q -b html -c "$root/docs" "$root" "$root/build/site"
run_pytest() { "$venv/bin/python" -m pytest -rs -c "$root/pyproject.toml" --rootdir "$root" "$@"; }
say "pytest"
run_pytest "${arguments[@]}"
$slow_lane || exit 0

# What changes from day to day is told, so that a failure can be had again.
turn=$((10#${SLOW_LANE_TURN:-$(date +%j)}))
batches=(1 3)
batch=${batches[turn % 2]}
say "slow lane of SLOW_LANE_TURN=$turn: the zoo at batch $batch; the next turn runs batch ${batches[(turn + 1) % 2]}"
# The emulator has no wheel for every Linux; its tests are skipped without it.
"$venv/bin/python" -m pip install -q --disable-pip-version-check 'ngraph-mxnet-backend[emulate]' ||
    say "slow lane: no emulator, so AVX-512 is tested only if this CPU has it"
run_pytest -m slow frontends/onnx/test_suite.py targets/cpu/test_emulated.py test_numpy_versions.py runtime_package docs
run_pytest -m slow plugin/test_zoo.py -k "test_every_model and -$batch]"

seed=${FUZZ_SEED:-$((16#$(git -C "$root" rev-parse --short=7 HEAD 2>/dev/null || printf 1)))}
for target in params symbol; do
    say "slow lane: mutants of MXNet's files ($target) for half a minute, of FUZZ_SEED=$seed"
    found=$(mktemp -d)
    "$venv/bin/python" "$root/scripts/fuzz_files.py" "$target" "$found" --blind --seconds 30 --seed "$seed"
    rm -rf "$found"
done

# Where there is no wheel of ONNX Runtime, there is no judge.
if "$venv/bin/python" -m pip install -q --disable-pip-version-check 'ngraph-mxnet-backend[judge]'; then
    run_pytest scripts/test_fuzz_values.py
    run_pytest conformance/test_written_as_onnx.py -k by_onnx_runtime
    run_pytest -m slow frontends/onnx/test_suite_written.py
    say "slow lane: random models for two minutes, of FUZZ_SEED=$seed"
    found=$(mktemp -d)
    "$venv/bin/python" "$root/scripts/fuzz_values.py" "$found" --seconds 120 --seed "$seed"
    rm -rf "$found"
else
    say "slow lane: no ONNX Runtime, so no random models are tried"
fi

say "slow lane: the wheel for other machines, without MXNet and beside it"
NGRAPH_KERNEL_FOLDER=$kernels run_pytest -m slow test_wheel.py

# MXNet does not install on newer Pythons, and the library has no part for it there.
mapfile -t newer < <(suitable_pythons $((with_mxnet + 1)) "$without_mxnet")
((${#newer[@]} > 0)) || say "slow lane: no Python 3.$((with_mxnet + 1)) or newer is at hand"
for python in "${newer[@]}"; do
    say "slow lane: MXNet's models on $python, without MXNet"
    found=$(mktemp -d)
    "$python" -m venv "$found"
    NGRAPH_KERNEL_FOLDER=$kernels "$found/bin/python" -m pip install -q --disable-pip-version-check "$root"
    "$venv/bin/python" "$root/scripts/without_mxnet.py" "$found/bin/python"
    rm -rf "$found"
done

own=$("$venv/bin/python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
mapfile -t others < <(suitable_pythons 10 "$with_mxnet" | grep -v "/$own\$")
if ((${#others[@]} == 0)); then
    say "slow lane: no other Python is at hand"
    exit 0
fi
PYTHON=${others[turn % ${#others[@]}]}
say "slow lane of SLOW_LANE_TURN=$turn: $PYTHON, of ${others[*]}; each has its turn"
ensure_venv .venv-test-other '[test]'
need_installed_package
run_pytest -m 'slow or not slow' test_numpy_versions.py plugin/test_gluon.py plugin/test_executor.py \
    targets/cpu/test_backend.py frontends/onnx/test_suite.py::test_some_nodes
