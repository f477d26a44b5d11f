#!/usr/bin/env bash
# Every CUDA source compiles with nvcc and the CUDA runtime alone, without warnings, for the oldest GPU
# that has all that they use; with STRAIT_CAMPAIGNS=1 for all GPUs of today. Needs no GPU. Hardly optimised:
# what is optimised is compiled on the machine that runs it.
set -euo pipefail
cd "$(dirname "$0")/../.."

if ! command -v nvcc >/dev/null; then
  echo "nvcc is not installed: the CUDA sources are not compiled (they run in the emulation all the same)"
  exit 77
fi
architectures=()
for number in 80 ${STRAIT_CAMPAIGNS:+90 120}; do
  if nvcc --list-gpu-code | grep -qx "sm_$number"; then
    architectures+=(-gencode "arch=compute_$number,code=sm_$number")
  else
    echo "this nvcc does not know sm_$number"
  fi
done
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
printf '%s\n' kernels/*.cu tests/gpu/*.cu | xargs -P 2 -I {} bash -c '
  source=$1 out=$2
  shift 2
  nvcc -std=c++20 -fmad=false --expt-relaxed-constexpr -Xcicc -O1 -Xptxas -O0 -Werror all-warnings \
    -Xcompiler -Wall,-Wextra -I. "$@" -c "$source" -o "$out/$(basename "$source").o" && echo "$source compiles"
' _ {} "$out" "${architectures[@]}"
