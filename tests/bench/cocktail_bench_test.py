"""cocktail_bench builds, runs, and prints the shares that it is there for. Speed is not judged here."""

import re

import quick_run


def main():
    shares = "bytes of weights per second, as a share of memcpy's"
    printed = quick_run.built("cocktail_bench", "--benchmark_filter=(copy|0.1 0.2 4 bits)/1048576$",
                              "--benchmark_min_time=0.001")
    assert shares in printed, printed
    table = dict(re.findall(r"^(\S.*?)/1048576 +[\d.]+ GB/s +([\d.]+) %$", printed.split(shares)[1], re.MULTILINE))
    expected = {"copy"} | {f"{what} 0.1 0.2 4 bits" for what in ("encode", "reduce", "decode", "apply")}
    assert set(table) == expected, printed
    assert float(table["copy"]) == 100 and all(float(share) > 0 for share in table.values()), table


if __name__ == "__main__":
    main()
