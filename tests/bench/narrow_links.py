"""Codecs on a narrow link: step times against raw fp32 and against the simulator. See README.md.

usage: narrow_links.py [--bin FOLDER] [--rounds 3] [--steps 16] [--codecs CODEC ...] [--quick]

Starts itself again in a network namespace of its own, whose loopback is narrow: so it needs root,
`unshare` and `tc`. Exit code 77, with the reason, where that cannot be had.
"""

import json
import os
import statistics
import subprocess
import sys

import machinery

PORT = 47000  # where the lower stage listens; ours alone, in a namespace of our own
ONE_EPOCH = 2  # steps; so every later visit of a sample is a change
# An IPv4 packet of 1500 bytes carries 1448 of a stream.
STREAM_SHARE = 1448 / 1500
LATENCY = 0.0001  # seconds
DELTA = {"codec.forward": "delta", "codec.backward": "fixed"}
CODECS = {
    "raw fp32": {}, "raw bf16": {"codec.wire_dtype": "bfloat16"}, "delta 4/8": DELTA,
    "delta 4/4": DELTA | {"codec.backward_bits": 4}, "auto": {"codec.forward": "auto", "codec.backward": "auto"},
}
INSIDE = "STRAIT_NARROW_LINKS_INSIDE"


def enter_namespace():
    """Comes back only inside: a namespace without any network but a loopback of its own."""
    if INSIDE in os.environ:
        return
    probe = "ip link set dev lo up mtu 1500 gso_max_segs 1 gso_max_size 1600"
    probe += " && tc qdisc add dev lo root handle 1: htb"
    done = subprocess.run(["unshare", "-n", "sh", "-c", probe], capture_output=True, text=True)
    if done.returncode != 0:
        print(f"skipped: no network namespace with a shaped loopback here: {done.stderr.strip()}")
        sys.exit(77)
    environment = dict(os.environ, **{INSIDE: "1"})
    os.execvpe("unshare", ["unshare", "-n", sys.executable, "-B", *sys.argv], environment)


def tc(*words):
    subprocess.run(["tc", *words], check=True, capture_output=True, text=True)


def shape(bits_per_second, ports=(PORT, "0xffff")):
    """Makes each direction to these ports (value, mask) this narrow; 0: as wide as it is."""
    # A narrow link has no packet of 64 kB, and no bucket that lets the first tenth of a message
    # through at once.
    packets = ["1", "1600"] if bits_per_second else ["65535", "65536"]
    subprocess.run(["ip", "link", "set", "dev", "lo", "up", "mtu", "1500"]
                   + ["gso_max_segs", packets[0], "gso_max_size", packets[1]],
                   check=True)
    subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], capture_output=True)
    if bits_per_second == 0:
        return
    tc("qdisc", "add", "dev", "lo", "root", "handle", "1:", "htb", "default", "9")
    narrow = f"{int(bits_per_second)}bit"
    for number, rate in (("1", narrow), ("2", narrow), ("9", "40gbit")):
        words = ["class", "add", "dev", "lo", "parent", "1:", "classid", f"1:{number}", "htb"]
        tc(*words, "rate", rate, "burst", "4k", "cburst", "4k", "quantum", "6000")
    for number, side in (("1", "dport"), ("2", "sport")):
        words = ["filter", "add", "dev", "lo", "parent", "1:", "protocol", "ip", "prio", "1", "u32"]
        tc(*words, "match", "ip", side, str(ports[0]), ports[1], "flowid", f"1:{number}")


def make_bench(folder, steps, small):
    machinery.make_bench(folder, steps, small)
    config = json.loads((folder / "model/config.json").read_text())
    # A shared weight would send its gradients over the same port.
    (folder / "model/config.json").write_text(json.dumps(dict(config, tie_word_embeddings=False)))
    rows = ONE_EPOCH * 2 * machinery.MICRO_BATCHES
    lines = (folder / "text.txt").read_text().splitlines()
    (folder / "text.txt").write_text("\n".join(lines[: rows + 1]) + "\n")
    settings = {"pipeline.stages": 2, "pipeline.depth": 1, "train.steps": steps}
    settings |= {"hosts.ports": f"{PORT}-{PORT}", "hosts.shared_memory": False}
    for name, codec in CODECS.items():
        machinery.write_recipe(folder, file_name(name), settings | codec)


def file_name(codec):
    return codec.replace(" ", "-").replace("/", "-")


class Measurement:
    """One run: its steps behind the first epoch, and the bytes of one."""

    def __init__(self, program, folder, codec):
        name = file_name(codec)
        run = machinery.Run(program, folder, f"{name}.toml")
        trace = json.loads((folder / f"runs/{name}/trace.json").read_text())
        taken = machinery.steps_of(trace)
        self.steps = list(zip(taken["0.0"], taken["1.0"]))[ONE_EPOCH:]
        self.seconds = statistics.median(both[0]["period"] for both in self.steps)
        last = run.events("step")[-1]
        self.bytes = (last["bytes_forward"], last["bytes_backward"])

    def forecast(self, simulate, bits_per_second):
        """The median step as the simulator sees it: this run's work, on that link. For runs on a
        wide link: on a narrow one what is waited for the step's decision looks like work."""
        rate = bits_per_second / 8 * STREAM_SHARE
        link = [*(size / machinery.MICRO_BATCHES for size in self.bytes), rate, LATENCY]
        seconds = []
        for both in self.steps:
            costs = [machinery.cost_of(step) for step in both]
            step = machinery.simulated_step(simulate, "1f1b", machinery.MICRO_BATCHES, 1, costs, link)
            seconds.append(step["seconds"])
        return statistics.median(seconds)


def measure_all(program, simulate, folder, rounds, codecs):
    """Per width of the link and codec the measurements, codecs taking turns."""
    shape(0)
    raw = Measurement(program, folder, "raw fp32")
    need = max(raw.bytes) * 8 / raw.seconds / STREAM_SHARE
    print(f"raw fp32 sends {max(raw.bytes) / 1e6:.2f} MB a step and direction, which takes")
    print(f"{raw.seconds:.4f} s when links take no time: it needs {need / 1e6:.1f} Mbit/s\n")
    print("link Mbit/s  codec      s/step  forecast  measured/forecast  bytes  faster than raw fp32:")
    print("                                                                    measured  forecast")
    wide = {}
    for width in (0, need, need / 4):
        shape(width)
        taken = {codec: [] for codec in codecs}
        for _ in range(rounds):
            for codec, measurements in taken.items():
                measurements.append(Measurement(program, folder, codec))
        wide = wide or taken
        forecasts = {
            codec: [measurement.forecast(simulate, width) for measurement in measurements]
            for codec, measurements in wide.items()
        }
        show(width, taken, forecasts)


def show(width, taken, forecasts):
    for codec, measurements in taken.items():
        seconds = statistics.median(m.seconds for m in measurements)
        ratio = statistics.median(m.seconds / f for m, f in zip(measurements, forecasts[codec]))
        faster = statistics.median(raw.seconds / m.seconds for raw, m in zip(taken["raw fp32"], measurements))
        expected = statistics.median(raw / mine for raw, mine in zip(forecasts["raw fp32"], forecasts[codec]))
        share = sum(taken["raw fp32"][0].bytes) / sum(measurements[0].bytes)
        print(f"{width / 1e6 or float('inf'):11.1f}  {codec:9}  {seconds:.4f}  "
              f"{statistics.median(forecasts[codec]):8.4f}  {ratio:17.3f}  1/{share:4.2f}"
              f"  {faster:8.3f}  {expected:8.3f}")


def main():
    options = machinery.options_of(__doc__, rounds=3, steps=16, codecs=list(CODECS)[1:])
    enter_namespace()
    rounds, steps = (1, 8) if options.quick else (options.rounds, options.steps)
    with machinery.scratch() as folder:
        make_bench(folder, steps, options.quick)
        codecs = ["raw fp32", *options.codecs]
        measure_all(options.bin / "strait", options.bin / "simulate", folder, rounds, codecs)


if __name__ == "__main__":
    sys.exit(main())
