# shellcheck shell=bash
# Set-up that latency.sh and test.sh share: find a Python and a compiler, make a virtual environment that holds this
# checkout installed as a package. Source it; it sets `root`, the checkout.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# What the package is built from: it is copied apart for the build and hashed to see whether a build is out of date.
# Optional ones may be missing.
package_sources=(pyproject.toml setup.py CMakeLists.txt MANIFEST.in README.md LICENSE licenses
    ngraph_mxnet_autoload.pth ngraph_mxnet ngraph_mxnet_autoload csrc cmake)

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }

# show_help ARGUMENT...: print the script's leading comment and stop, if help is among the arguments: nothing is built.
show_help() {
    case " $* " in
    *' -h '* | *' --help '*)
        sed -n '2,/^set /{ s/^# \{0,1\}//p; }' "$0"
        exit
        ;;
    esac
}

fail() {
    say "error: $*"
    exit 1
}

with_mxnet=12 without_mxnet=14 # the newest CPython 3 that MXNet installs on, and that the package does

# suitable_python PYTHON NEWEST: whether it is a CPython 3.10 to 3.NEWEST that can make virtual environments and compile
# extension modules.
suitable_python() {
    "$1" - "$2" >/dev/null 2>&1 <<'PYTHON'
import ensurepip, os, sys, sysconfig, venv
header = os.path.join(sysconfig.get_path("include"), "Python.h")
sys.exit(not ((3, 10) <= sys.version_info[:2] <= (3, int(sys.argv[1])) and os.path.exists(header)))
PYTHON
}

# Print the Python to use, one that MXNet installs on: $PYTHON if set, else the first suitable one.
find_python() {
    local candidate
    if [[ -n ${PYTHON:-} ]]; then
        suitable_python "$PYTHON" $with_mxnet || fail "PYTHON=$PYTHON is not Python 3.10 to 3.12 with venv and its C headers"
        printf '%s\n' "$PYTHON"
        return
    fi
    for candidate in python3.11 python3.12 python3.10 python3; do
        if suitable_python "$candidate" $with_mxnet; then
            command -v "$candidate"
            return
        fi
    done
    fail "no Python 3.10, 3.11 or 3.12 with venv and its C headers found (on Debian: apt-get install python3-venv" \
        "python3-dev); set PYTHON to one"
}

# suitable_pythons OLDEST NEWEST: print those of CPython 3.OLDEST to 3.NEWEST, one a line.
suitable_pythons() {
    local minor
    for ((minor = $1; minor <= $2; minor++)); do
        if suitable_python "python3.$minor" "$2"; then command -v "python3.$minor"; fi
    done
}

need_compiler() {
    command -v "${CXX:-g++}" >/dev/null || fail "no C++ compiler: install g++ (on Debian: apt-get install g++) or set CXX"
}

# Print the package's sources that exist, as paths from the checkout, build outputs left out, NUL-separated.
list_sources() {
    local path
    for path in "${package_sources[@]}"; do
        if [[ -e $root/$path ]]; then
            (cd "$root" && find -L "$path" -type f ! -name '*.pyc' ! -name '*.so' ! -name '*.o' -print0)
        fi
    done
}

# copy_sources FOLDER: the package's sources, into a folder.
copy_sources() { (cd "$root" && list_sources | tar --null --files-from=- -chf -) | tar -xf - -C "$1"; }

# kernel_folder SOURCES PYTHON: where a build of these sources by this Python leaves the kernels' objects.
kernel_folder() {
    printf '%s\n' "$1/build/cmake-$("$2" -c 'import sys, sysconfig
print(f"{sysconfig.get_platform()}-{sys.implementation.cache_tag}-release")')"
}

# What decides whether an environment is up to date: the sources, the extras and the Python.
fingerprint() {
    {
        (cd "$root" && list_sources | LC_ALL=C sort -z | xargs -0 sha256sum)
        "$1" -c 'import sys; print(sys.version, sys.prefix)'
        printf '%s\n' "$2"
    } | sha256sum
}

# install LOG ARGUMENT...: pip install, quiet unless it fails.
install() {
    local log=$1
    shift
    if ! "$venv/bin/python" -m pip install --disable-pip-version-check "$@" >>"$log" 2>&1; then
        tail -n 40 "$log" >&2
        fail "pip install failed; the whole log is $log"
    fi
}

# ensure_venv FOLDER EXTRAS [REQUIREMENT...]: make or update FOLDER with this checkout installed in it. EXTRAS is ''
# or such as '[test]'; each REQUIREMENT is installed without what it depends on. Afterwards `venv` is FOLDER's path, and
# `kernels` the folder of the kernels' objects. The package is built from a copy, so that nothing else of the checkout gets
# in; it is kept, so that a kernel is compiled again only if its sources have changed.
ensure_venv() {
    local folder=$1 extras=$2 python wanted copy log
    shift 2
    venv=$root/$folder
    copy=$root/build/${folder#.}
    python=$(find_python)
    need_compiler
    wanted=$(fingerprint "$python" "$extras $*")
    kernels=$(kernel_folder "$copy" "$python")
    if [[ -x $venv/bin/python && -d $kernels && $(cat "$venv/fingerprint" 2>/dev/null) == "$wanted" ]]; then
        say "$folder is up to date"
        return
    fi
    say "setting up $folder with $("$python" --version) (several minutes the first time)"
    log=$venv/setup.log
    "$python" -m venv --clear "$venv"
    mkdir -p "$copy"
    find "$copy" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
    copy_sources "$copy"
    say "installing the package and what it needs; the log is $folder/setup.log"
    install "$log" "$copy$extras"
    if (($# > 0)); then install "$log" --no-deps "$@"; fi
    printf '%s\n' "$wanted" >"$venv/fingerprint"
}

# Stop unless the environment's Python finds the installed package, not the checkout.
need_installed_package() {
    local found
    found=$(cd "$root/scripts" && "$venv/bin/python" -c 'import ngraph_mxnet; print(ngraph_mxnet.__file__)')
    [[ $found == "$venv"/* ]] || fail "ngraph_mxnet comes from $found, not from $venv"
}
