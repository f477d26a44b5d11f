#!/usr/bin/env bash
# Everything that only a GPU can show, on a machine with one and without a network:
#   tests/gpu/all.sh [FOLDER]
# Needs nvcc and a driver. Strait itself is built with that machine's own libtorch (Torch_DIR, or that
# of its python3); what its distribution lacks of libraries is taken from FOLDER, where .deb files were
# unpacked (dpkg -x FILE FOLDER). Prints what each part says and, at the end, a table of the parts. Each
# takes ten minutes at most; parts of training run alone, too: trained.py says which there are.
set -uo pipefail
cd "$(dirname "$0")/../.."
extra=${1:+$(readlink -f "$1")}

command -v nvcc >/dev/null || { echo "nvcc is not on the PATH (often in /usr/local/cuda/bin)"; exit 77; }
nvidia-smi -L 2>/dev/null | grep GPU || { echo "no GPU here (nvidia-smi -L lists none)"; exit 77; }
nvcc --version | tail -n 2 | head -n 1
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
table=() failures=0

# part NAME command...: runs it; 77 means that it cannot run here.
part() {
  local name=$1 began=$SECONDS code=0
  shift
  printf '\n=== %s\n' "$name"
  "$@" || code=$?
  local result=ok
  [[ $code == 0 ]] || result="failed ($code)"
  [[ $code == 77 ]] && result="not run"
  [[ $code == 0 || $code == 77 ]] || failures=$((failures + 1))
  table+=("$(printf '%-44s %-12s %4d s' "$name" "$result" $((SECONDS - began)))")
}

bits() { bash tests/gpu/compile.sh bits "$out/bits" && "$out/bits"; }
bench() { bash tests/gpu/compile.sh bench "$out/bench" && "$out/bench" 2048 4096 && "$out/bench" 4096 768; }

own_torch() {
  if [[ -n ${Torch_DIR:-} ]]; then
    echo "$Torch_DIR"
  else
    python3 -c 'import torch; print(torch.utils.cmake_prefix_path + "/Torch")' 2>/dev/null
  fi
}

build() {
  local torch
  torch=$(own_torch)
  [[ -f $torch/TorchConfig.cmake ]] || { echo "no libtorch: set Torch_DIR"; return 77; }
  command -v cmake ninja >/dev/null || { echo "cmake or ninja is missing"; return 77; }
  if [[ -n $extra ]]; then
    export CMAKE_PREFIX_PATH=$extra/usr CPATH=$extra/usr/include
    export LIBRARY_PATH=$extra/usr/lib/$(uname -m)-linux-gnu
    export LD_LIBRARY_PATH=$LIBRARY_PATH${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export PKG_CONFIG_PATH=$extra/usr/lib/$(uname -m)-linux-gnu/pkgconfig:$extra/usr/share/pkgconfig
  fi
  cmake -S . -B build/gpu -G Ninja -DCMAKE_BUILD_TYPE=Release -DSTRAIT_TESTS=OFF -DSTRAIT_CUDA=ON \
    -DTorch_DIR:PATH="$torch" && cmake --build build/gpu --target strait strait-stage &&
    build/gpu/bin/strait --version
}

trained() { timeout 600 python3 -B tests/gpu/trained.py "$1" --bin build/gpu/bin; }

# NCCL takes no two replicas on one GPU.
nccl() {
  [[ $(nvidia-smi -L | grep -c GPU) -ge 2 ]] || { echo "two GPUs are needed"; return 77; }
  [[ -x build/gpu/bin/strait ]] || { echo "strait is not built"; return 77; }
  STRAIT_BIN=$PWD/build/gpu/bin python3 -B tests/gpu/nccl_replicas.py
}

part "bits of the kernels against the plain ones" bits
part "encode and decode beside a copy" bench
part "strait with CUDA kernels and its own libtorch" build
for name in speed waits links variants resume losses; do
  part "training: $name" trained "$name"
done
part "gradients of two replicas summed by NCCL" nccl
part "declarations of NCCL against its header" bash tests/gpu/nccl_header_test.sh
printf '\n%-44s %-12s %6s\n' part result time
printf '%s\n' "${table[@]}"
exit $((failures ? 1 : 0))
