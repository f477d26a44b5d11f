"""cocktail_bench builds, runs, and prints the shares that it is there for. Speed is not judged here."""

import os
import pathlib
import re
import subprocess
import sys

BUILD = pathlib.Path(os.environ["STRAIT_BUILD"])


def main():
    subprocess.run(["cmake", "--build", BUILD, "--target", "cocktail_bench"], check=True, stdout=subprocess.DEVNULL)
    bench = BUILD / "bin/cocktail_bench"
    shares = "bytes of weights per second, as a share of memcpy's"
    printed = subprocess.run([bench, "--benchmark_filter=(copy|0.1 0.2 4 bits)/1048576$", "--benchmark_min_time=0.001"],
                             check=True, capture_output=True, text=True).stdout
    assert shares in printed, printed
    table = dict(re.findall(r"^(\S.*?)/1048576 +[\d.]+ GB/s +([\d.]+) %$", printed.split(shares)[1], re.MULTILINE))
    expected = {"copy"} | {f"{what} 0.1 0.2 4 bits" for what in ("encode", "reduce", "decode", "apply")}
    assert set(table) == expected, printed
    assert float(table["copy"]) == 100 and all(float(share) > 0 for share in table.values()), table
    print("\n".join(f"{name}: {share} %" for name, share in table.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
