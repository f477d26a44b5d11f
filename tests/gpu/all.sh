#!/usr/bin/env bash
# Everything that only a GPU can show, on a machine with one and without a network:
#   tests/gpu/all.sh [FOLDER [PART...]]
# Needs nvcc and a driver. Strait itself is built with that machine's own libtorch (Torch_DIR, or that
# of its python3); what its distribution lacks of libraries is taken from FOLDER, where .deb files were
# unpacked (dpkg -x FILE FOLDER; README.md says which); "" is none. Prints what each part says and, at
# the end, a table of the parts. Without a PART all run, in this order:
parts=(bits build resume losses waits variants links-2 speed memory bench nccl links-4 nccl-header)
# From resume to nccl, but for bench, they take the strait that build has made, in this call or in an
# earlier one.
#   STRAIT_GPU_SECONDS=540  for all parts together; one that finds no time left has failed
#   STRAIT_GPU_FULL=1       speed beside compiled PyTorch, too, and links at a second rate
#   OUT=FOLDER              all output goes to FOLDER/log, too, that of the build to FOLDER/build.log
set -uo pipefail
budget=${STRAIT_GPU_SECONDS:-540}
extra=${1:+$(readlink -f "$1")}
[[ -z ${1:-} || -d $extra ]] || { echo "$1 is no folder"; exit 2; }
shift $(($# ? 1 : 0))
for name in "$@"; do
  [[ " ${parts[*]} " == *" $name "* ]] || { echo "$name is no part; there are: ${parts[*]}"; exit 2; }
done
[[ $# == 0 ]] || parts=("$@")
[[ -z ${OUT:-} ]] || OUT=$(readlink -m "$OUT")
cd "$(dirname "$0")/../.." || exit 2

command -v nvcc >/dev/null || PATH=/usr/local/cuda/bin:$PATH
command -v nvcc >/dev/null || { echo "nvcc is neither on the PATH nor in /usr/local/cuda/bin"; exit 77; }
nvidia-smi -L 2>/dev/null | grep GPU || { echo "no GPU here (nvidia-smi -L lists none)"; exit 77; }
# What a call before has left would take its part of the GPU's time and memory.
for _ in {1..15}; do  # a GPU takes seconds to be rid of a process
  busy=$(nvidia-smi --query-compute-apps=pid --format=csv,noheader 2>/dev/null | grep -E '^[0-9]+' | tr '\n' ' ')
  [[ -n $busy ]] || break
  sleep 1
done
[[ -z $busy ]] || { echo "other processes use the GPU: $busy"; exit 2; }

out=$(mktemp -d)
logs=$out tee_pid='' pid='' building='' runs=''
if [[ -n ${OUT:-} ]]; then
  logs=$OUT
  mkdir -p "$logs"
  exec > >(trap '' TERM INT; exec tee "$logs/log") 2>&1
  tee_pid=$!
fi

# A signal ends what runs of each part: `timeout` passes it on, and the part ends for that.
leave() {
  trap '' TERM INT
  local part child
  for part in $pid $building; do
    for child in $(cat "/proc/$part/task/$part/children" 2>/dev/null); do kill "$child" 2>/dev/null; done
    wait "$part"
  done
  rm -rf "$out" ${runs:+"$runs"}
  exec >/dev/null 2>&1  # so that tee ends
  for _ in {1..30}; do
    [[ -n $tee_pid ]] && kill -0 "$tee_pid" || break
    sleep 0.1
  done
}
trap leave EXIT
trap 'exit 143' TERM INT

nvcc --version | tail -n 2 | head -n 1
if [[ -n $extra ]]; then
  machine=$(uname -m)-linux-gnu
  libraries=$extra/usr/lib/$machine
  PATH=$PATH:$extra/usr/bin
  # Not CPATH: the compiler warns of headers that it finds by that.
  export CMAKE_PREFIX_PATH=$extra/usr CPLUS_INCLUDE_PATH=$extra/usr/include LIBRARY_PATH=$libraries
  export LD_LIBRARY_PATH=$libraries:$extra/lib/$machine${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export PKG_CONFIG_PATH=$out/pc:$libraries/pkgconfig:$extra/usr/share/pkgconfig
  # Debian's own asks for the .pc files of all that libzmq is made of.
  mkdir "$out/pc"
  printf '%s\n' "Name: libzmq" "Description: ZeroMQ" "Version: 4.3.4" "Libs: -L$libraries -lzmq" \
    "Cflags: -I$extra/usr/include" >"$out/pc/libzmq.pc"
fi
more=()
[[ -z ${STRAIT_GPU_FULL:-} ]] || more+=(--full)
# Saves of the large model take minutes on many a disk.
shm=$(df --output=avail -BG /dev/shm 2>/dev/null | tail -n 1 | tr -dc 0-9)
[[ -n ${TMPDIR:-} || ${shm:-0} -lt 20 ]] || runs=$(mktemp -d -p /dev/shm)
[[ -z $runs ]] || more+=(--folder "$runs")

left() { echo $((budget - SECONDS)); }

# limited SECONDS command...: that long at most, and no longer than is left for all parts.
limited() {
  local limit=$1
  shift
  ((limit <= $(left))) || limit=$(left)
  timeout -k "${grace:-5}" $((limit > 0 ? limit : 1)) "$@"
}

bits() {
  local program
  for program in bits layers; do
    limited 200 bash tests/gpu/compile.sh $program "$out/$program" "$out/objects" &&
      limited 120 "$out/$program" || return
  done
}

bench() {
  limited 200 bash tests/gpu/compile.sh bench "$out/bench" "$out/objects" &&
    limited 60 "$out/bench" 2048 4096 && limited 60 "$out/bench" 16384 768
}

own_torch() {
  if [[ -n ${Torch_DIR:-} ]]; then
    echo "$Torch_DIR"
  else
    limited 120 python3 -c 'import torch; print(torch.utils.cmake_prefix_path + "/Torch")' 2>/dev/null
  fi
}

# The compiler may warn of what ours does not, and the linker may not find the libraries of libtorch's.
make_strait() {
  local torch program gpu
  torch=$(own_torch)
  [[ -f $torch/TorchConfig.cmake ]] || { echo "no libtorch: set Torch_DIR"; return 77; }
  for program in cmake ninja g++ pkg-config; do
    command -v "$program" >/dev/null || { echo "$program is missing"; return 77; }
  done
  gpu=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -dc 0-9)
  limited 120 cmake -S . -B build/gpu -G Ninja -DCMAKE_BUILD_TYPE=Release -DSTRAIT_TESTS=OFF \
    -DSTRAIT_CUDA=ON -DTorch_DIR:PATH="$torch" -DCMAKE_CUDA_ARCHITECTURES="${gpu:-native}" \
    -DCMAKE_CXX_FLAGS=-w -DCMAKE_EXE_LINKER_FLAGS=-Wl,--allow-shlib-undefined &&
    limited 400 cmake --build build/gpu --target strait strait-stage && build/gpu/bin/strait --version
}

build() {
  local code=0
  make_strait >"$logs/build.log" 2>&1 || code=$?
  # What an earlier call has built is of other sources.
  ((code == 0)) || rm -f build/gpu/bin/strait build/gpu/bin/strait-stage
  tail -n $((code ? 40 : 1)) "$logs/build.log"
  return "$code"
}

is_built() {
  [[ -x build/gpu/bin/strait && -x build/gpu/bin/strait-stage ]] ||
    { echo "strait is not built, which is the part build"; return 1; }
}

# It ends what it has started within 30 s of the signal.
trained() {
  local -A seconds=([resume]=150 [losses]=180 [waits]=120 [memory]=120 [variants]=200 [speed]=200 [links-2]=220 [links-4]=400)
  is_built || return 77
  local limit=${seconds[$1]}
  [[ -z ${STRAIT_GPU_FULL:-} ]] || limit=$((2 * limit))
  grace=30 limited "$limit" python3 -B tests/gpu/trained.py "$1" --bin build/gpu/bin "${more[@]}"
}

# With one GPU on two hosts; sshd is taken from the distribution's packages.
nccl() {
  is_built || return 77
  STRAIT_BIN=$PWD/build/gpu/bin limited 300 python3 -B tests/gpu/nccl_replicas.py
}

title_of() {
  case $1 in
    bits) echo "bits of the kernels against the plain ones" ;;
    bench) echo "encode and decode beside a copy" ;;
    build) echo "strait with CUDA kernels and its own libtorch" ;;
    nccl) echo "gradients of two replicas summed by NCCL" ;;
    nccl-header) echo "declarations of NCCL against its header" ;;
    *) echo "training: $1" ;;
  esac
}

run_part() {
  trap : TERM INT  # see leave()
  case $1 in
    bits | bench | build | nccl) "$1" ;;
    nccl-header) limited 60 bash tests/gpu/nccl_header_test.sh ;;
    *) trained "$1" ;;
  esac
}

table=() failures=0
# row TITLE CODE SECONDS; 77 means that the part cannot run here.
row() {
  local result="failed ($2)"
  case $2 in
    0) result=ok ;;
    77) result="not run" ;;
    124) result="out of time" ;;
    137) result="killed" ;;  # by timeout at last, or for want of memory
  esac
  [[ $2 == 0 || $2 == 77 ]] || failures=$((failures + 1))
  table+=("$(printf '%-46s %-12s %4d s' "$1" "$result" "$3")")
  echo "${table[-1]}"
}

# The build needs no GPU: it goes on beside the comparison of bits.
if [[ " ${parts[*]} " == *" bits build "* ]]; then
  { run_part build; code=$?; echo $SECONDS >"$out/build.end"; exit $code; } >"$out/build.said" 2>&1 &
  building=$! build_began=$SECONDS
fi
for name in "${parts[@]}"; do
  title=$(title_of "$name") began=$SECONDS code=0
  printf '\n=== %s\n' "$title"
  if [[ $name == build && -n $building ]]; then
    wait "$building" || code=$?
    building='' ended=$(cat "$out/build.end" 2>/dev/null)
    began=$((SECONDS - (${ended:-SECONDS} - build_began)))
    cat "$out/build.said"
  elif (($(left) <= 0)); then
    code=124
  else
    run_part "$name" &
    pid=$!
    wait "$pid" || code=$?
    pid=''
  fi
  row "$title" "$code" $((SECONDS - began))
  [[ -z $runs ]] || rm -rf "${runs:?}"/*  # a part that was killed leaves its runs
done
printf '\n%-46s %-12s %6s\n' part result time
printf '%s\n' "${table[@]}"
exit $((failures ? 1 : 0))
