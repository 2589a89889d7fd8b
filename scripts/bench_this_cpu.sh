#!/usr/bin/env bash
# Measure what depends on this CPU: kernels against its peak for every instruction set that it runs, networks beside
# their peers with each instruction set and with bf16, the zoo, BERT, and quantised models. About half an hour of an otherwise
# idle machine; docs/benchmarks.md says what the figures mean and holds those of other CPUs.
#     scripts/bench_this_cpu.sh FOLDER [PART...]        parts: kernels networks zoo bert quantized int8, by default
#                                                       all; amx (products in its tiles) and many (1 to 16 threads, also
#                                                       training), each some four minutes
# FOLDER gets a text of each part, and the JSON of those that have one. PYTHON_WITH_BENCH names an interpreter that has
# the package with the extra `bench`; without it everything is installed into .venv-bench. PYTHON_WITH_NNCF names one that has NNCF and
# OpenVINO, for the part int8; without it that part has no OpenVINO in int8.
set -euo pipefail
# shellcheck source=scripts/venv.sh
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

show_help "$@"
(($# >= 1)) || fail "name the folder for the results: $0 FOLDER [PART...]"
folder=$1
shift
usual=(kernels networks zoo bert quantized int8)
known=" ${usual[*]} amx many "
parts=("$@")
((${#parts[@]} > 0)) || parts=("${usual[@]}")
for part in "${parts[@]}"; do
    [[ $known == *" $part "* ]] || fail "$part is none of$known"
done
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

unset PYTHONPATH PYTHONHOME MXNET_SUBGRAPH_BACKEND
if [[ -n ${PYTHON_WITH_BENCH:-} ]]; then
    python=$PYTHON_WITH_BENCH
else
    ensure_venv .venv-bench '[bench]'
    need_installed_package
    python=$venv/bin/python
fi
threads=${OMP_NUM_THREADS:-$(nproc)}

# record NAME COMMAND...: run it, show its output and keep it; a failure is told, and the parts after it run.
failed=()
record() {
    local name=$1
    shift
    say "$name"
    "$@" 2>&1 | tee "$folder/$name.txt" || failed+=("$name")
}
peers() { record "$1" "$python" "$root/scripts/bench_peers.py" --threads "$threads" --save "$folder/$1.json" "${@:2}"; }

{ lscpu; uptime; } >"$folder/machine.txt"
# Not from the checkout, which has no libraries; what fails in a process substitution would not stop this script.
isas=$(cd "$folder" && "$python" -c '
from ngraph_mxnet import _core
from ngraph_mxnet.targets.cpu.machine import isa
print(*isa.supported(_core.cpu_features()))')
read -ra isas <<<"$isas"
variants=ngraph
for isa in "${isas[@]:1}"; do
    variants+=",ngraph[NGRAPH_CPU_ISA=$isa]"
done
# bench_peers leaves bf16 out where the CPU has none.
variants+=",ngraph[NGRAPH_PRECISION=bf16],openvino-bf16"

for part in "${parts[@]}"; do
    case $part in
    kernels)
        for isa in "${isas[@]}"; do
            record "kernels-$isa" "$python" "$root/scripts/bench_microkernels.py" --isa "$isa"
        done
        ;;
    networks) peers networks --models resnet50_v2,mobilenetv2_1.0,densenet121 --peers "mkldnn,onnxruntime,openvino,$variants" ;;
    zoo) peers zoo --models zoo --rounds 8 --burst 3 --peers mkldnn,onnxruntime,openvino,ngraph ;;
    bert) peers bert --models bert12_128 --rounds 8 --burst 3 --peers "mkldnn,onnxruntime,openvino,$variants" ;;
    quantized)
        for model in resnet18_v1 resnet50_v1; do
            record "quantized-$model" env OMP_NUM_THREADS="$threads" "$python" "$root/scripts/bench_quantized.py" --model "$model"
        done
        ;;
    int8)
        [[ -n ${PYTHON_WITH_NNCF:-} ]] && int8=openvino-int8 || int8=onnxruntime-int8
        eight() {
            record "$1" "$python" "$root/scripts/bench_int8.py" --threads "$threads" --save "$folder/$1.json" \
                --nncf "${PYTHON_WITH_NNCF:-$python}" "${@:2}"
        }
        models=resnet50_v2,mobilenetv2_1.0,bert12_128,resnet18_v1,densenet121,inceptionv3,squeezenet1.1,vgg16
        eight int8 --models "$models" --peers "none,openvino,$int8,ngraph-int8,ngraph"
        limit=ONEDNN_MAX_CPU_ISA=AVX2  # what OpenVINO reads; AVX2 alone is the case of most CPUs that are in use
        [[ ${isas[0]} == avx2 ]] || eight int8-avx2 --models resnet50_v2,mobilenetv2_1.0,bert12_128 --peers \
            "none,openvino[$limit],$int8[$limit],ngraph-int8[NGRAPH_CPU_ISA=avx2],ngraph[NGRAPH_CPU_ISA=avx2]"
        ;;
    amx)
        bf16=NGRAPH_PRECISION=bf16
        peers amx --models resnet50_v2,bert12_128,mobilenetv2_1.0,densenet121 --batch 1,8 --rounds 4 --burst 3 --peers \
            "openvino,openvino-bf16,ngraph,ngraph[$bf16],ngraph[$bf16,NGRAPH_CPU_ISA=avx512]"
        record amx-parts "$python" "$root/scripts/bench_convolutions.py" --parts --repeats 5
        ;;
    many)
        counts=
        for count in 1 2 4 8 16; do
            if ((count <= $(nproc))); then counts+=,$count; fi
        done
        record many "$python" "$root/scripts/bench_peers.py" --models resnet50_v2,mobilenetv2_1.0,bert12_128 \
            --threads "${counts#,}" --rounds 3 --burst 3 --peers "openvino,ngraph,ngraph[NGRAPH_PRECISION=auto]" \
            --save "$folder/many.json"
        peers many-batch --models resnet50_v2 --batch 32 --rounds 3 --burst 1 --peers "openvino,$variants"
        record many-training "$python" "$root/scripts/bench_training.py" --models resnet50_v2,mobilenetv2_1.0 \
            --threads "${counts#,}" --rounds 2 --burst 1 --peers mkldnn,ngraph --save "$folder/many-training.json"
        ;;
    esac
done
((${#failed[@]} == 0)) || fail "failed: ${failed[*]}"
say "results are in $folder"
