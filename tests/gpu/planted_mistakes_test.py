"""The emulation of a GPU notices mistakes: each is planted in a copy of the CUDA kernels, which is then
compiled and run like the kernels themselves. Some of the ways to notice, a mistake each; all with STRAIT_CAMPAIGNS=1."""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("STRAIT_BUILD", ROOT / "build/release"))
SKIPPED = 77

UNORDERED = "nothing orders them|no thread has written"
# What, file, text there, text instead, sources that show it, what is noticed.
MISTAKES = [
    ("no barrier before a token's top exponent is read", "encode_rows.cu",
     "      __syncthreads();\n      top = largest_of(results.top", "      top = largest_of(results.top", "encode_rows", UNORDERED),
    ("no barrier before a message leaves", "encode_rows.cu",
     "  __syncthreads();\n  if (here) copy_bytes(slot, payload", "  if (here) copy_bytes(slot, payload", "encode_rows", UNORDERED),
    ("no barrier after a message is fetched", "decode_rows.cu",
     "  __syncthreads();\n  if (here) advance", "  if (here) advance", "decode_rows", UNORDERED),
    ("no barrier after the last block is known", "row_sums.cuh",
     "  __syncthreads();\n  if (shared.is_last == 0) return;", "  if (shared.is_last == 0) return;", "encode_rows", UNORDERED),
    ("no fence before a block counts itself", "row_sums.cuh",
     "  __threadfence();\n  __syncthreads();", "  __syncthreads();", "encode_rows", "nothing orders them"),
    ("a sum of blocks that is not atomic", "row_sums.cuh",
     "atomicAdd(finished, 1U) + 1 == blocks", "++*finished == blocks", "encode_rows", "nothing orders them"),
    ("a mask of 31 lanes", "octets.cuh", "kAllLanes = 0xFFFFFFFFU", "kAllLanes = 0x7FFFFFFFU", "decode_rows", "leaves it out"),
    ("lanes that skip an exchange of their warp", "staged_token.cuh",
     "if (token.rotate && __any_sync(kAllLanes, turned) != 0)", "if (turned)", "decode_rows",
     "do not come|different operations|have ended|waits for it|wait for lanes"),
    ("an exchange with the wrong lane", "octet_groups.cuh",
     "__shfl_xor_sync(kAllLanes, mine, stride)", "__shfl_xor_sync(kAllLanes, mine, stride + 1)", "decode_rows", "differ"),
    ("a copy of one byte too many", "slots.cuh",
     "if (slot.thread < size - rest)", "if (slot.thread <= size - rest)", "encode_rows", "outside of all|differ|" + UNORDERED),
    ("a plane's byte next to its own", "staged_token.cuh",
     "(octet - first / kOctet);", "(octet - first / kOctet) + 1;", "encode_rows", "differ|outside of all|" + UNORDERED),
    ("one value too many at the end of a token", "octets.cuh",
     "if (i < count) reinterpret", "if (i <= count) reinterpret",
     "decode_rows", "outside of all|differ|" + UNORDERED),
    ("a scale code that is never written", "octet_levels.cuh",
     "if (token.is_first(octet)) slot", "if (token.is_first(octet) && octet != 0) slot", "encode_rows", "no thread has written"),
    ("vectors off their alignment", "slots.cuh",
     "const int begin = min(size, (vector - off) % vector);", "const int begin = 0 * off;", "decode_rows", "off its alignment"),
    ("a sum left from the message before", "row_sums.cuh", "  *finished = 0;", "  *finished = 1;", "encode_rows", "differ"),
    ("host code that clears the GPU's memory", "encode_rows.cu",
     "      at = {sums.rows + first", "      *counters = 0;\n      at = {sums.rows + first", "encode_rows", "host touches"),
    ("a wait for the GPU", "encode_rows.cu",
     'check_cuda(cudaGetLastError(), "encode_rows");', 'check_cuda(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), "wait");',
     "encode_rows", "has waited"),
    ("no barrier before a table of levels is read", "dequantize_nf4.cu",
     "  __syncthreads();\n", "", "dequantize_nf4", UNORDERED),
    ("the halves of a byte exchanged", "dequantize_nf4.cu", "4 * (1 - i % 2)", "4 * (i % 2)", "dequantize_nf4", "differ: a matrix"),
    ("a thread behind the last value", "dequantize_nf4.cu", "if (left <= 0) return;", "if (left < -8) return;", "dequantize_nf4",
     "outside of all|differ"),
    ("less shared memory than a wide token takes", "row_launch.cuh",
     "ask_for_shared_memory(Kernel* kernel, const Cut& cut) {", "ask_for_shared_memory(Kernel* kernel, const Cut& cut) {\n  return;",
     "encode_rows", "invalid argument"),
    ("no barrier before a row's sum is read", "layer_values.cuh", "  __syncthreads();\n  float result", "  float result", "rms_norm", UNORDERED),
    ("one place for the sums of two rows", "rms_norm.cu", "    shared += next;\n", "", "rms_norm", "nothing orders them"),
    ("a row behind the last one", "rms_norm.cu", "  const bool here = row < shape.rows;\n  const std::int64_t begin",
     "  const bool here = row <= shape.rows;\n  const std::int64_t begin", "rms_norm", "outside of all|differ|" + UNORDERED),
    ("a row that is not added to the weight's gradient", "rms_norm.cu", "first < shape.rows;\n       first += step", "first < shape.rows - 1;\n       first += step",
     "rms_norm", "differ|no thread has written"),
    ("a gate's slope for its value", "gated_product.cu", "rounded<element>(active.value)", "rounded<element>(active.slope)", "gated_product", "differ"),
    ("an activation that is not rounded", "gated_product.cu", "rounded<element>(activated(shape.activation, result.value[i]).value)",
     "activated(shape.activation, result.value[i]).value", "gated_product", "differ"),
    ("an activation that is not rounded in the backward", "gated_product.cu", "rounded<element>(active.value)", "active.value", "gated_product", "differ"),
    ("a slope that is not rounded", "gated_product.cu", "rounded<element>(slopes.value[i] * into_up.value[i])", "slopes.value[i] * into_up.value[i]",
     "gated_product", "differ"),
    ("normalised values that are not rounded", "rms_norm.cu", "if (!shape.one_plus_weight) normal", "if (false) normal", "rms_norm", "differ"),
    ("normalised values that are rounded before 1 + weight", "rms_norm.cu", "if (!shape.one_plus_weight) normal", "if (true) normal", "rms_norm", "differ"),
    ("no gradient without the weight's", "rms_norm.cu", "  Octet sums[kOctets] = {};", "  if (weight_sums == nullptr) return;\n  Octet sums[kOctets] = {};",
     "rms_norm", "differ"),
    ("powers of e without the largest logit", "cross_entropy.cu", "const float base = top == -INFINITY ? 0.0F : top;", "const float base = 0.0F;", "cross_entropy", "differ"),
    ("an octet of NaN that is left out", "cross_entropy.cu", "const float base = top == -INFINITY ? 0.0F : top;",
     "if (top == -INFINITY) return;\n    const float base = top;", "cross_entropy", "differ"),
    ("the wrong octet's angle", "rotate_heads.cu", "part * kOctet) * kSize;", "part) * kSize;", "rotate_heads", "differ"),
    ("a head's rest that is not copied", "rotate_heads.cu", "  if (part >= turned) {", "  if (part >= turned) {\n    return;", "rotate_heads", "differ"),
    ("a neighbour row's logits at the end of a row", "cross_entropy.cu", "value < vocabulary_; }", "value <= vocabulary_; }", "cross_entropy",
     "differ|outside of all|" + UNORDERED),
    ("a target read when its slope may be there", "cross_entropy.cu", "log_probabilities[blockIdx.x] = chosen",
     "log_probabilities[blockIdx.x] = load_elements(logits + row.offset(target), element, 1).value[0]", "cross_entropy", UNORDERED),
]
LAYERS = ("rms_norm", "gated_product", "rotate_heads", "cross_entropy")
CAMPAIGN = bool(os.environ.get("STRAIT_CAMPAIGNS"))


def compiler():
    """The build's compiler, and what it is started with (ccache)."""
    cache = (BUILD / "CMakeCache.txt").read_text()
    names = ["CMAKE_CXX_COMPILER_LAUNCHER", "CMAKE_CXX_COMPILER"]
    found = [re.search(rf"^{name}:\w+=(.+)$", cache, re.MULTILINE) for name in names]
    return [match[1] for match in found if match]


def output_of(mistake, folder):
    """What the comparison of bits says with the mistake in it, and how it ends."""
    name, file, text, instead, source, _ = mistake
    copy = folder / "tree/kernels"
    shutil.copytree(ROOT / "kernels", copy)
    original = (copy / file).read_text()
    assert original.count(text) >= 1, f"{name}: {file} has no such place any more: {text!r}"
    (copy / file).write_text(original.replace(text, instead, 1))
    program = folder / "bits"
    compared = "layers" if source in LAYERS else "bits"
    parts = (f"{compared}_checked_main", "checked_kernels", "checked_gpu")
    libraries = [BUILD / f"tests/gpu/libemulated_{part}.a" for part in parts]
    subprocess.run(
        [*compiler(), "-std=c++20", "-O1", "-ffp-contract=off", "-fno-strict-aliasing", "-fsanitize=thread", "-DSTRAIT_EMULATED_GPU",
         f"-I{ROOT / 'tests/gpu/emulation'}", f"-I{folder / 'tree'}", f"-I{ROOT}", "-x", "c++", "-c", copy / f"{source}.cu",
         "-o", folder / "planted.o"], check=True)
    # The planted object comes first, so that the archive's own is left out.
    subprocess.run([compiler()[-1], folder / "planted.o", *libraries, "-o", program], check=True)
    result = subprocess.run([program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return result.stdout, result.returncode


def main():
    if not (BUILD / "tests/gpu/libemulated_checked_gpu.a").exists():
        print("this build has no emulation of a GPU")
        return SKIPPED

    def is_noticed(mistake):
        with tempfile.TemporaryDirectory() as folder:
            output, code = output_of(mistake, pathlib.Path(folder))
        noticed = code != 0 and re.search(mistake[-1], output) is not None
        words = output.strip().splitlines()[-1] if output.strip() else f"nothing said, exit code {code}"
        print(f"{'noticed' if noticed else 'MISSED '} {mistake[0]}: {words}", flush=True)
        return noticed

    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        first = {mistake[-1]: mistake for mistake in reversed(MISTAKES)}
        return 0 if all(list(pool.map(is_noticed, MISTAKES if CAMPAIGN else [*first.values()][::3]))) else 1


if __name__ == "__main__":
    sys.exit(main())
