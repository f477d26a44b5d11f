#!/usr/bin/env bash
# compile.sh bits|bench FILE: one of the two programs for the GPU of this machine, without libtorch.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
printf '%s\n' kernels/*.cu "tests/gpu/$1_main.cu" tests/kernels/{plain_rows,random_rows,row_cases}.cpp |
  xargs -P "$(nproc)" -I {} bash -c '
    nvcc -std=c++20 -O3 -fmad=false --expt-relaxed-constexpr -arch="${STRAIT_GPU:-native}" \
      -Xcompiler -ffp-contract=off -I. -c "$1" -o "$2/$(basename "$1").o"' _ {} "$out"
nvcc -arch="${STRAIT_GPU:-native}" "$out"/*.o -o "$2"
