#!/usr/bin/env bash
# On a GPU: the CUDA kernels give the bits of the plain implementation in tests/kernels, and how fast
# they are beside a copy within the GPU's memory. "speed" as an argument prints only the latter.
set -euo pipefail
cd "$(dirname "$0")/../.."

if ! command -v nvcc >/dev/null; then
  echo "nvcc is not installed: nothing to run"
  exit 77
fi
if ! nvidia-smi -L 2>/dev/null | grep -q GPU; then
  echo "no GPU here: the bits of the CUDA kernels are not compared"
  exit 77
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
nvcc -std=c++20 -O3 -fmad=false --expt-relaxed-constexpr -arch=native -Xcompiler -ffp-contract=off -I. \
  kernels/*.cu tests/gpu/bits_main.cu tests/kernels/plain_rows.cpp tests/kernels/random_rows.cpp \
  -o "$out/bits"
"$out/bits" "$@"
