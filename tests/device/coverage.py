"""How many lines of the code for GPUs the tests on the test device execute, by gcov. A measurement, not a
test; it needs a build with device_test in it, and takes minutes.

usage: coverage.py [--build build/release]

Only the measured sources are compiled again. They come first on the command that links device_test, and
callers in other sources take the first definition, as all is position independent; what a source calls
within itself is its own anyway.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = (
    "stages/transfer.cpp", "stages/group_setup.cpp", "stages/nccl_group.cpp", "stages/nccl_library.cpp",
    "stages/adamw.cpp", "stages/sync_memory.cpp", "stages/boundary_codecs.cpp", "framework/codec/device_rows.cpp",
    "framework/codec/slot_store.cpp", "framework/codec/tensor_pool.cpp", "kernels/gpu_rows.cpp",
    "kernels/row_lookup.cpp", "kernels/squared_norm.cpp", "kernels/causal_attention.cpp", "kernels/flash_attention.cpp",
    "kernels/quantized_matrix.cpp", "kernels/kernel_tensors.cpp", "kernels/rms_norm.cpp", "kernels/gated_product.cpp",
    "kernels/rotate_heads.cpp", "kernels/cross_entropy.cpp",
)
ROOM_UNIT = {"stages": "strait_stages.dir", "kernels": "strait_kernels.dir", "framework/codec": "strait_codec.dir"}


def compile_command(build, source):
    """Words that compile it as its room is compiled, without precompiled headers."""
    marker = ROOM_UNIT[str(pathlib.PurePath(source).parent)]
    entries = json.loads((build / "compile_commands.json").read_text())
    entry = next(e for e in entries if marker in e.get("output", e["command"]))
    words = shlex.split(entry["command"])
    kept, skip = [], False
    for i, word in enumerate(words):
        if skip:
            skip = False
        elif word in ("-o", "-c", "-include", "-MF", "-MT"):
            skip = True
        elif word not in ("-MD", "-Winvalid-pch", "-fpch-preprocess"):
            kept.append(word)
    return kept


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    build = parser.parse_args().build.resolve()
    with tempfile.TemporaryDirectory(prefix="strait-coverage-") as folder:
        folder = pathlib.Path(folder)

        def compiled(source):
            made = folder / (source.replace("/", "_") + ".o")
            words = [*compile_command(build, source), "--coverage", "-O1", "-c", str(ROOT / source)]
            subprocess.run([*words, "-o", made], cwd=build, check=True)
            return made

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compiled, SOURCES))
        commands = subprocess.run(
            ["ninja", "-C", build, "-t", "commands", "device_test"], capture_output=True, text=True, check=True
        ).stdout
        link = next(c for c in reversed(commands.splitlines()) if "-o tests/device/device_test" in c)
        own = " ".join(str(path) for path in objects)
        program = folder / "device_test"
        flags = f"--coverage -Wl,--allow-multiple-definition {own} -o {program}"
        link = re.sub(r"-o tests/device/device_test(?=\s)", flags, link.split(" && ")[1], count=1)
        # Objects before all others.
        link = re.sub(r"(\S*c\+\+) ", rf"\1 {own} ", link.replace(own, "", 1), count=1)
        subprocess.run(link, cwd=build, shell=True, check=True)
        subprocess.run([program, "--gtest_brief=1"], cwd=ROOT, check=True)
        print(f"{'source':<36}{'lines':>7}{'executed':>10}")
        for source, path in zip(SOURCES, objects, strict=True):
            out = subprocess.run(
                ["gcov", "-n", "-o", path, path], cwd=folder, capture_output=True, text=True, check=True
            ).stdout
            found = re.search(rf"File '\S*{re.escape(source)}'\nLines executed:([\d.]+)% of (\d+)", out)
            share, lines = (float(found[1]), found[2]) if found else (0.0, "-")
            print(f"{source:<36}{lines:>7}{share:>9.1f} %")


if __name__ == "__main__":
    main()
