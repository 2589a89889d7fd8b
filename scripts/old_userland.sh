#!/usr/bin/env bash
# Try the wheels of dist/ (scripts/build_wheels.sh) on an old Linux: Debian 11, whose glibc is 2.31, with Python 3.9.
# debootstrap makes it in FOLDER, build/debian11 by default; CPython 3.11 is compiled in it once, from Debian's sources,
# in a few minutes.
#     scripts/old_userland.sh [FOLDER]
# A script runs there in MXNet 1.9.1, without and with MXNET_SUBGRAPH_BACKEND=NGRAPH. Its model is compiled to a file and
# written as ONNX where there is no MXNet, and ngraph-runtime runs the file on Python 3.9, with the same results.
# Needs root, debootstrap, Debian's servers and a package registry; status 77 where one of the first two is missing.
set -euo pipefail
# shellcheck source=scripts/venv.sh
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

show_help "$@"
skip() {
    say "skipped: $*"
    exit 77
}
[[ $(id -u) == 0 ]] || skip "only root makes a userland and enters it"
command -v debootstrap >/dev/null || skip "debootstrap is not installed (on Debian: apt-get install debootstrap)"
shopt -s nullglob
wheels=("$root"/dist/ngraph_mxnet_backend-*-cp311-*.whl "$root"/dist/ngraph_runtime-*.whl)
((${#wheels[@]} == 2)) || fail "dist/ holds ${#wheels[@]} of the package's wheel for CPython 3.11 and the runtime's:" \
    "run scripts/build_wheels.sh"

folder=${1:-$root/build/debian11}
log=$folder.log
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
: >"$log"

# inside COMMAND...: in the userland. Its /proc and /dev/shm are gone with the command, which also sets what pip asks for.
inside() {
    # shellcheck disable=SC2016
    unshare --mount sh -c 'mount -t proc proc "$0/proc" && mount -t tmpfs tmpfs "$0/dev/shm" && exec chroot "$0" "$@"' \
        "$folder" env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
        PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CERT=/etc/ssl/certs/ca-certificates.crt \
        NGRAPH_CACHE_DIR=off ${http_proxy:+http_proxy="$http_proxy"} \
        ${https_proxy:+https_proxy="$https_proxy"} ${PIP_INDEX_URL:+PIP_INDEX_URL="$PIP_INDEX_URL"} "$@"
}

# quiet COMMAND...: into the log; the end of that is shown if it fails.
quiet() {
    if ! "$@" >>"$log" 2>&1; then
        tail -n 40 "$log" >&2
        fail "$* failed; the whole log is $log"
    fi
}

if [[ ! -e $folder/usr/bin/python3.9 ]]; then
    say "Debian 11 into $folder; the log is $log"
    quiet debootstrap --variant=minbase --include=ca-certificates,python3-venv bullseye "$folder"
fi
mkdir -p "$folder/dev/shm" "$folder/root/wheels"
cp -L /etc/resolv.conf "$folder/etc/resolv.conf"
# Certificates that this machine trusts beside Debian's.
if [[ -e /etc/ssl/certs/ca-certificates.crt ]]; then cp -L /etc/ssl/certs/ca-certificates.crt "$folder/etc/ssl/certs/"; fi
if [[ ! -e $folder/usr/local/bin/python3.11 ]]; then
    say "CPython 3.11, from Debian 12's sources"
    # From where debootstrap took the userland.
    sed -n 's/^deb \(\S*\) bullseye main.*/deb-src \1 bookworm main/p' "$folder/etc/apt/sources.list" \
        >"$folder/etc/apt/sources.list.d/python.list"
    quiet inside apt-get update
    quiet inside apt-get install -y --no-install-recommends gcc make libc6-dev libgomp1 zlib1g-dev libffi-dev libssl-dev \
        libsqlite3-dev libbz2-dev liblzma-dev xz-utils
    quiet inside sh -ec 'mkdir -p /usr/src/python && cd /usr/src/python
apt-get source --download-only python3.11
tar -xf python3.11_*.orig.tar.* --strip-components 1
./configure --quiet && make -s -j "$(nproc)" && make -s install'
fi

# environment NAME PYTHON REQUIREMENT...: a fresh one in /root.
environment() {
    quiet inside "$2" -m venv --clear "/root/$1"
    quiet inside "/root/$1/bin/python" -m pip install "${@:3}"
}
rm -f "$folder"/root/wheels/*
cp "${wheels[@]}" "$folder/root/wheels/"
package=/root/wheels/${wheels[0]##*/}
say "the wheels, in environments with MXNet, without MXNet, and with the runtime alone"
environment mxnet python3.11 "${package}[mxnet]"
environment alone python3.11 "$package"
environment runtime python3.9 "/root/wheels/${wheels[1]##*/}"

cat >"$folder/root/script.py" <<'PYTHON'
"""Call a net of MXNet's, and write it, its input and its output, or compare with these."""
import os, sys
import mxnet as mx
import numpy as np

if not os.path.exists("/root/y.npy"):
    mx.random.seed(1)
    net = mx.gluon.model_zoo.vision.get_model("mobilenet0.25")
    net.initialize(mx.init.Xavier())
    net.hybridize()
    x = mx.nd.random.normal(shape=(1, 3, 224, 224))
    np.save("/root/x.npy", x.asnumpy())
    np.save("/root/y.npy", net(x).asnumpy())
    net.export("/root/net")
net = mx.gluon.SymbolBlock.imports("/root/net-symbol.json", ["data"], "/root/net-0000.params")
net.hybridize()
y = net(mx.nd.array(np.load("/root/x.npy"))).asnumpy()
np.testing.assert_allclose(y, np.load("/root/y.npy"), rtol=1e-4, atol=1e-4)
if os.environ.get("MXNET_SUBGRAPH_BACKEND") == "NGRAPH":
    found = sys.modules["ngraph_mxnet"].report()
    assert found.regions and not found.problem, found
PYTHON
rm -f "$folder"/root/{x,y}.npy "$folder"/root/net*
say "MXNet 1.9.1 alone"
quiet inside /root/mxnet/bin/python /root/script.py
say "the same script with MXNET_SUBGRAPH_BACKEND=NGRAPH"
quiet inside env MXNET_SUBGRAPH_BACKEND=NGRAPH /root/mxnet/bin/python /root/script.py
say "its model without MXNet: a compiled file, and ONNX"
model=(/root/net-symbol.json --params /root/net-0000.params --shape data=1,3,224,224)
quiet inside /root/alone/bin/ngraph-mxnet compile "${model[@]}" -o /root/net.ngraph
quiet inside /root/alone/bin/ngraph-mxnet to-onnx "${model[@]}" -o /root/net.onnx
say "the file, on Python 3.9 with NumPy and the runtime alone"
quiet inside /root/runtime/bin/ngraph-run /root/net.ngraph --time 10
quiet inside /root/runtime/bin/python -c 'import numpy as np, ngraph_runtime
found = ngraph_runtime.load("/root/net.ngraph")(np.load("/root/x.npy"))[0]
np.testing.assert_allclose(found, np.load("/root/y.npy"), rtol=1e-4, atol=1e-4)'
say "all of it works with glibc $(inside ldd --version | sed -n '1s/.* //p')"
