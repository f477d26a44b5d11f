#!/usr/bin/env bash
# On a GPU: the CUDA kernels give the bits of the plain implementation in tests/kernels, and those of
# layers what their formulas say. The same programs run everywhere in the emulation.
set -euo pipefail
cd "$(dirname "$0")/../.."

if ! command -v nvcc >/dev/null; then
  echo "nvcc is not installed: nothing to run on a GPU"
  exit 77
fi
if ! nvidia-smi -L 2>/dev/null | grep -q GPU; then
  echo "no GPU here: the bits of the CUDA kernels are compared in the emulation only"
  exit 77
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for program in bits layers; do
  bash tests/gpu/compile.sh $program "$out/$program" "$out/objects"
  "$out/$program"
done
