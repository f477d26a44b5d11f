#!/usr/bin/env bash
# What stages/nccl_library.h declares is what NCCL's header declares: where that is, in NCCL_HOME (or
# installed), or in the package nvidia.nccl of .venv or of the python3 on the PATH.
set -euo pipefail
cd "$(dirname "$0")/../.."

package_of() { "$1" -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0])' 2>/dev/null || true; }
include=
for folder in "${NCCL_HOME:-/usr}" "$(package_of .venv/bin/python)" "$(package_of python3)"; do
  if [[ -z $include && -f $folder/include/nccl.h ]]; then include=$folder/include; fi
done
[[ -n $include ]] || { echo "no nccl.h in /usr or in a package of Python: set NCCL_HOME"; exit 77; }
cuda=$(dirname "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")/../include
[[ -f $cuda/cuda_runtime.h ]] || cuda=/usr/local/cuda/include
[[ -f $cuda/cuda_runtime.h ]] || { echo "there is no cuda_runtime.h, which nccl.h reads"; exit 77; }

planted=$(mktemp -d)
trap 'rm -rf "$planted"' EXIT
mkdir "$planted/stages"
check() {
  "${CXX:-c++}" -std=c++20 -fsyntax-only -I"$planted" -I. -isystem "$include" -isystem "$cuda" \
    tests/gpu/nccl_header.cpp
}
check
# Mistakes are noticed.
for mistake in 's/kInProgress = 7/kInProgress = 6/' 's/int ranks, UniqueId id/UniqueId id/'; do
  sed "$mistake" stages/nccl_library.h >"$planted/stages/nccl_library.h"
  ! cmp -s stages/nccl_library.h "$planted/stages/nccl_library.h" || { echo "$mistake changes nothing"; exit 1; }
  if check 2>"$planted/log"; then echo "not noticed: $mistake"; exit 1; fi
  grep -q "static assertion failed" "$planted/log" || { cat "$planted/log"; exit 1; }
done
echo "declarations are those of $include/nccl.h"
