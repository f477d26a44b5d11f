"""One link over a path that one TCP flow may not fill. See README.md.

usage: flows.py --between NAMESPACE NAMESPACE --host ADDRESS [--bin FOLDER] [--against FOLDER]
                [--seconds 30] [--bytes N] [--every MS] [--rounds N] [--quick]

The namespaces are hosts whose link is shaped already; --host is the address of the second. Needs root. --against:
another build, in turn. Exit code 77 without namespaces, because a link over a loopback has one flow.
"""

import argparse
import os
import statistics
import sys

import yielding


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", default=os.environ.get("STRAIT_BIN", "build/release/bin"))
    parser.add_argument("--against", help="the programs of another build")
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--bytes", type=int, default=1_000_000)
    parser.add_argument("--every", type=int, default=500, help="milliseconds")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--between", nargs=2, metavar="NAMESPACE")
    parser.add_argument("--host", help="the receiver's address")
    parser.add_argument("--quick", action="store_true", help="short: shows only that it works")
    options = parser.parse_args()
    if not options.between or not options.host:
        print("no namespaces are given, and a link over a loopback has one flow")
        return 77
    if options.quick:
        options.seconds = 1
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for number in range(options.rounds):
        for name, folder in (("before", options.against), ("now", options.bin)):
            if folder is None:
                continue
            options.bin = folder
            bench = yielding.Bench(options)
            _, flood, _ = bench.measure(0, "foreground")
            took, _, _ = bench.measure(options.bytes, "none")
            # By the second half, the link has chosen its flows.
            late = statistics.median(took[len(took) // 2 :])
            print(f"round {number}, {name:6}: {flood[0] * 8e-6:6.2f} Mbit/s, a burst {late:6.0f} ms", flush=True)
    print(f"load {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
