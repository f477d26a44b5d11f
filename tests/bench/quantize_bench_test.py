"""quantize_bench builds, runs, and prints the shares that it is there for. Speed is not judged here."""

import re

import quick_run


def main():
    quick_run.skip_without_libtorch()
    shares = "float32 bytes per second, as a share of memcpy's"
    printed = quick_run.built("quantize_bench", "--benchmark_filter=(copy|code change 4 bits)/32$",
                              "--benchmark_min_time=0.001")
    assert shares in printed, printed
    table = dict(re.findall(r"^(\S.*?)/32 +[\d.]+ GB/s +([\d.]+) %$", printed.split(shares)[1], re.MULTILINE))
    expected = {"copy", "encode change 4 bits", "decode change 4 bits", "operators: encode change 4 bits",
                "operators: decode change 4 bits"}
    assert set(table) == expected, printed
    assert float(table["copy"]) == 100 and all(float(share) > 0 for share in table.values()), table


if __name__ == "__main__":
    main()
