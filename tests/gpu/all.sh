#!/usr/bin/env bash
# Everything that only a GPU can show, on a machine with one and without a network:
#   tests/gpu/all.sh [FOLDER [PART...]]
# Needs nvcc and a driver. Strait itself is built with that machine's own libtorch (Torch_DIR, or that
# of its python3); what its distribution lacks of libraries is taken from FOLDER, where .deb files were
# unpacked (dpkg -x FILE FOLDER); "" is none. Prints what each part says and, at the end, a table of the
# parts. Each takes ten minutes at most. Without a PART all run, in this order:
parts=(bits bench build speed waits links-2 links-4 variants resume losses nccl nccl-header)
# From speed to nccl they take the strait that build has made, in this call or in an earlier one.
set -uo pipefail
extra=${1:+$(readlink -f "$1")}
[[ -z ${1:-} || -d $extra ]] || { echo "$1 is no folder"; exit 2; }
shift $(($# ? 1 : 0))
for name in "$@"; do
  [[ " ${parts[*]} " == *" $name "* ]] || { echo "$name is no part; there are: ${parts[*]}"; exit 2; }
done
[[ $# == 0 ]] || parts=("$@")
cd "$(dirname "$0")/../.." || exit 2

command -v nvcc >/dev/null || PATH=/usr/local/cuda/bin:$PATH
command -v nvcc >/dev/null || { echo "nvcc is neither on the PATH nor in /usr/local/cuda/bin"; exit 77; }
nvidia-smi -L 2>/dev/null | grep GPU || { echo "no GPU here (nvidia-smi -L lists none)"; exit 77; }
nvcc --version | tail -n 2 | head -n 1
if [[ -n $extra ]]; then
  libraries=$extra/usr/lib/$(uname -m)-linux-gnu
  export CMAKE_PREFIX_PATH=$extra/usr CPATH=$extra/usr/include LIBRARY_PATH=$libraries
  export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export PKG_CONFIG_PATH=$libraries/pkgconfig:$extra/usr/share/pkgconfig
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
table=() failures=0

# part TITLE command...: runs it; 77 means that it cannot run here.
part() {
  local title=$1 began=$SECONDS code=0
  shift
  printf '\n=== %s\n' "$title"
  "$@" || code=$?
  local result=ok
  [[ $code == 0 ]] || result="failed ($code)"
  [[ $code == 77 ]] && result="not run"
  [[ $code == 0 || $code == 77 ]] || failures=$((failures + 1))
  table+=("$(printf '%-44s %-12s %4d s' "$title" "$result" $((SECONDS - began)))")
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
  local torch program
  torch=$(own_torch)
  [[ -f $torch/TorchConfig.cmake ]] || { echo "no libtorch: set Torch_DIR"; return 77; }
  for program in cmake ninja g++ pkg-config; do
    command -v "$program" >/dev/null || { echo "$program is missing"; return 77; }
  done
  cmake -S . -B build/gpu -G Ninja -DCMAKE_BUILD_TYPE=Release -DSTRAIT_TESTS=OFF -DSTRAIT_CUDA=ON \
    -DTorch_DIR:PATH="$torch" && cmake --build build/gpu --target strait strait-stage &&
    build/gpu/bin/strait --version
}

is_built() { [[ -x build/gpu/bin/strait ]] || { echo "strait is not built, which is the part build"; return 1; }; }

# It ends what it has started within 30 s of the signal.
trained() {
  is_built || return 77
  timeout -k 30 600 python3 -B tests/gpu/trained.py "$1" --bin build/gpu/bin
}

# NCCL takes no two replicas on one GPU.
nccl() {
  [[ $(nvidia-smi -L | grep -c GPU) -ge 2 ]] || { echo "two GPUs are needed"; return 77; }
  is_built || return 77
  STRAIT_BIN=$PWD/build/gpu/bin python3 -B tests/gpu/nccl_replicas.py
}

for name in "${parts[@]}"; do
  case $name in
    bits) part "bits of the kernels against the plain ones" bits ;;
    bench) part "encode and decode beside a copy" bench ;;
    build) part "strait with CUDA kernels and its own libtorch" build ;;
    nccl) part "gradients of two replicas summed by NCCL" nccl ;;
    nccl-header) part "declarations of NCCL against its header" bash tests/gpu/nccl_header_test.sh ;;
    *) part "training: $name" trained "$name" ;;
  esac
done
printf '\n%-44s %-12s %6s\n' part result time
printf '%s\n' "${table[@]}"
exit $((failures ? 1 : 0))
