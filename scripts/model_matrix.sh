#!/usr/bin/env bash
# Examine other people's models under NGRAPH, set-up included: regions, agreement with MXNet, speed beside MKLDNN.
# Options go to model_matrix.py; this writes docs/models.md anew in some hours:
#     scripts/model_matrix.sh --page docs/models.md
# Needs Python 3.10 to 3.12 (PYTHON overrides the choice) and g++. Each library is installed into an environment of its
# own, .venv-matrix-gluoncv, -gluonnlp and -gluonts, for they want different versions of the same packages. The
# runtime's library is built in build/runtime.
set -euo pipefail
# shellcheck source=scripts/venv.sh
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

show_help "$@"
unset PYTHONPATH PYTHONHOME

# with_library NAME: make or update .venv-matrix-NAME with this checkout and the library.
with_library() {
    ensure_venv ".venv-matrix-$1" '[mxnet]'
    need_installed_package
    local log=$venv/setup.log
    [[ -e $venv/library ]] && return
    say "installing $1"
    install "$log" 'onnxruntime>=1.20,<2' 'openvino>=2025.0,<2027' 'numpy<2'
    case $1 in
    gluoncv) install "$log" cmake ninja gluoncv==0.10.5.post0 opencv-python==4.11.0.86 'numpy<2' ;;
    gluonnlp)
        install "$log" cython==0.29.37 wheel 'setuptools<70'
        # Its source distribution holds C code that Cython made for Python 3.10 or older.
        "$venv/bin/python" -m pip download --disable-pip-version-check --no-deps --no-binary :all: \
            --no-build-isolation -d "$venv" gluonnlp==0.10.0 >>"$log" 2>&1 || fail "no gluonnlp; see $log"
        tar -xf "$venv/gluonnlp-0.10.0.tar.gz" -C "$venv"
        rm -f "$venv"/gluonnlp-0.10.0/src/gluonnlp/data/*.c
        install "$log" --no-build-isolation "$venv/gluonnlp-0.10.0" 'numpy<2'
        ;;
    gluonts) install "$log" 'gluonts[mxnet]==0.13.7' 'pandas<2' ;;
    esac
    touch "$venv/library"
}

for library in gluoncv gluonnlp gluonts; do (with_library "$library"); done
venv=$root/.venv-matrix-gluoncv
say "the runtime library"
(
    cd "$root"
    export PATH=$venv/bin:$PATH
    cmake -S runtime -B build/runtime -G Ninja -DPython_EXECUTABLE="$venv/bin/python" >/dev/null
    cmake --build build/runtime >/dev/null
)
exec "$root/.venv-matrix-gluoncv/bin/python" "$root/scripts/model_matrix.py" "$@"
