#!/usr/bin/env bash
# compile.sh bits|layers|bench FILE [FOLDER]: one of the programs for the GPU of this machine, without
# libtorch. What all are made of is compiled once into the FOLDER.
set -euo pipefail
cd "$(dirname "$0")/../.."
objects=${3:-}
if [[ -z $objects ]]; then
  objects=$(mktemp -d)
  trap 'rm -rf "$objects"' EXIT
fi
mkdir -p "$objects"
printf '%s\n' kernels/*.cu "tests/gpu/$1_main.cu" tests/kernels/{plain_rows,random_rows,row_cases}.cpp |
  xargs -P "$(nproc)" -I {} bash -c '
    object=$2/$(basename "$1").o
    [[ -f $object ]] || {
      nvcc -std=c++20 -O3 -fmad=false --expt-relaxed-constexpr -arch="${STRAIT_GPU:-native}" \
        -Xcompiler -ffp-contract=off -I. -c "$1" -o "$object.part" && mv "$object.part" "$object"
    }' _ {} "$objects"
linked=("$objects/$1_main.cu.o")
for object in "$objects"/*.o; do
  [[ $object == *_main.cu.o ]] || linked+=("$object")
done
nvcc -arch="${STRAIT_GPU:-native}" "${linked[@]}" -o "$2"
