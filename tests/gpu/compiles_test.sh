#!/usr/bin/env bash
# Every CUDA source compiles with nvcc and the CUDA runtime alone, without warnings. Needs no GPU.
set -euo pipefail
cd "$(dirname "$0")/../.."

if ! command -v nvcc >/dev/null; then
  echo "nvcc is not installed: the CUDA sources are not compiled"
  exit 77
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
printf '%s\n' kernels/*.cu tests/gpu/*.cu | xargs -P 2 -I {} sh -c '
  nvcc -std=c++20 -O1 -fmad=false --expt-relaxed-constexpr -Werror all-warnings -Xcompiler -Wall,-Wextra \
    -I. -c {} -o "$0/$(basename {}).o" && echo "{} compiles"' "$out"
