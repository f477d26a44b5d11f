"""What a flood of sync traffic does to bursts of activations on one narrow link. See README.md.

Against a flood in the other direction, and beside a second background link, as well.

usage: yielding.py [--bin FOLDER] [--mbit 100] [--seconds 20] [--bytes N] [--every MS] [--quick]
       yielding.py --between NAMESPACE NAMESPACE --host ADDRESS    hosts that are shaped already

Starts itself again in a network namespace of its own, whose loopback is narrow: so it needs root,
`unshare` and `tc`. Exit code 77, with the reason, where that cannot be had.
"""

import contextlib
import json
import os
import statistics
import subprocess
import sys

import machinery
import narrow_links

PORT = 47000  # and the next three


class Bench:
    def __init__(self, options):
        self.program = options.bin / "yield_bench"
        self.options = options
        inside = ["ip", "netns", "exec"]
        self.here, self.there = ([*inside, name] for name in options.between or ("", ""))
        if not options.between:
            self.here = self.there = []

    @contextlib.contextmanager
    def receiver(self, back):
        command = [*self.there, self.program, "receive", self.options.host, str(PORT), back]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            yield
            process.wait(timeout=60)

    def measure(self, size, flood, links=1, back="none"):
        """Bursts of this size beside that flood: milliseconds in turn, each flood's bytes/s, the bursts'."""
        options = self.options
        numbers = (PORT, options.seconds, size, options.every)
        command = [*self.here, self.program, "send", options.host, *map(str, numbers), flood, str(links)]
        with self.receiver(back):
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        result = json.loads(done.stdout)
        return result["ms"], result["floods"], len(result["ms"]) * size / result["seconds"]


def show(name, took, alone, rest):
    took = sorted(took)
    middle, high = statistics.median(took), took[int(0.95 * len(took))]
    base = statistics.median(alone)
    line = f"{name:22}  {middle:7.1f}  {high:7.1f}  {took[-1]:7.1f}  {middle / base:11.2f}"
    print(line + (f"  {rest:19.2f}" if rest is not None else ""))


def measure_all(bench):
    size = bench.options.bytes
    whole = 0
    for where, back in (("alone", "none"), ("against a flood in the other direction", "foreground")):
        rates = [bench.measure(0, kind, back=back)[1][0] for kind in ("foreground", "background")]
        whole = max(whole, *rates)
        print(f"a flood {where}: {rates[0] * 8e-6:.1f} Mbit/s, in the background {rates[1] * 8e-6:.1f}")
    shares = bench.measure(0, "background", links=2)[1]
    print("two in the background:", " and ".join(f"{rate * 8e-6:.1f}" for rate in shares), "\n")
    print("bursts                  ms: half      95 %      all  half/unflooded  flood/what is left")
    alone, _, _ = bench.measure(size, "none")
    show("alone", alone, alone, None)
    for kind in ("foreground", "background"):
        took, flood, used = bench.measure(size, kind)
        show(f"beside a {kind} flood"[:22], took, alone, flood[0] / (whole - used))


def main():
    options = machinery.options_of(__doc__, mbit=100.0, seconds=20, bytes=1_000_000, every=200, between=[],
                                   host="127.0.0.1")
    if options.quick:
        options.seconds = 1
    if not options.between:
        narrow_links.enter_namespace()
        # All ports: the links share the uplink.
        narrow_links.shape(options.mbit * 1e6, ports=(PORT, "0xfffc"))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    measure_all(Bench(options))
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    sys.exit(main())
