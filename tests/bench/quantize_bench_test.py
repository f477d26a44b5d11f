"""quantize_bench builds, runs, and prints the shares that it is there for. Speed is not judged here."""

import os
import pathlib
import re
import subprocess
import sys

BUILD = pathlib.Path(os.environ["STRAIT_BUILD"])
SKIPPED = 77


def main():
    if not (BUILD / "kernels").is_dir():
        print("this build is without libtorch, and so without kernels")
        return SKIPPED
    subprocess.run(["cmake", "--build", BUILD, "--target", "quantize_bench"], check=True, stdout=subprocess.DEVNULL)
    bench = BUILD / "bin/quantize_bench"
    shares = "float32 bytes per second, as a share of memcpy's"
    printed = subprocess.run([bench, "--benchmark_filter=(copy|code change 4 bits)/32$", "--benchmark_min_time=0.001"],
                             check=True, capture_output=True, text=True).stdout
    assert shares in printed, printed
    table = dict(re.findall(r"^(\S.*?)/32 +[\d.]+ GB/s +([\d.]+) %$", printed.split(shares)[1], re.MULTILINE))
    expected = {"copy", "encode change 4 bits", "decode change 4 bits", "operators: encode change 4 bits",
                "operators: decode change 4 bits"}
    assert set(table) == expected, printed
    assert float(table["copy"]) == 100 and all(float(share) > 0 for share in table.values()), table
    print("\n".join(f"{name}: {share} %" for name, share in table.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
