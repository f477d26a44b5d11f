"""1F1B against zero bubble behind narrow links: simulated, replayed and real. See README.md.

usage: zero_bubble.py [--bin FOLDER] [--stages 4] [--mbit 100] [--rounds 3] [--steps 12] [--quick]

Starts itself again in a network namespace of its own (see narrow_links.py), so it needs root,
`unshare` and `tc`. Exit code 77, with the reason, where that cannot be had.
"""

import json
import statistics
import sys

import machinery
import narrow_links

SCHEDULES = ("1f1b", "zero_bubble")
MICRO_BATCHES = 8
MODEL = dict(machinery.MODEL, n_embd=128, n_layer=8, n_head=4, tie_word_embeddings=False)
SMALL = dict(machinery.MODEL, n_embd=32, n_layer=4, n_head=2, tie_word_embeddings=False)
PARTS = ("forward", "backward", "update", "weight gradient")


def shape_ports(ports, bits_per_second):
    """Every link of its own, and each of its directions, this narrow."""
    narrow_links.shape(bits_per_second, (ports[0], "0xffff"))
    if not bits_per_second:
        return
    for number, port in enumerate(ports[1:], 1):
        for side, kind in enumerate(("dport", "sport")):
            mine = f"1:{10 * number + side}"
            words = ["class", "add", "dev", "lo", "parent", "1:", "classid", mine, "htb"]
            rate = ["rate", f"{int(bits_per_second)}bit", "burst", "4k", "cburst", "4k"]
            narrow_links.tc(*words, *rate, "quantum", "6000")
            words = ["filter", "add", "dev", "lo", "parent", "1:", "protocol", "ip", "prio", "1"]
            narrow_links.tc(*words, "u32", "match", "ip", kind, str(port), "0xffff", "flowid", mine)


def make_bench(folder, options, ports):
    (folder / "model").mkdir()
    model = SMALL if options.quick else MODEL
    (folder / "model" / "config.json").write_text(json.dumps(model))
    machinery.write_text(folder, model["n_positions"], 400)
    for schedule in SCHEDULES:
        settings = {
            "pipeline.stages": options.stages, "pipeline.schedule": schedule, "train.steps": options.steps,
            "train.batch": 2 * MICRO_BATCHES, "hosts.ports": f"{ports[0]}-{ports[-1]}",
            "hosts.link_megabits": options.mbit, "hosts.shared_memory": False,
        }
        machinery.write_recipe(folder, schedule, settings)


class Measurement:
    def __init__(self, program, folder, schedule, stages):
        run = machinery.Run(program, folder, f"{schedule}.toml")
        trace = json.loads((folder / f"runs/{schedule}/trace.json").read_text())
        taken = machinery.steps_of(trace)
        self.steps = list(zip(*(taken[f"{stage}.0"] for stage in range(stages))))
        self.seconds = statistics.median(step[0]["period"] for step in self.steps)
        plan = json.loads((folder / f"runs/{schedule}/plan.json").read_text())["plan"]
        self.depth = plan["depth"]
        last = run.events("step")[-1]
        self.loss = last["loss"]
        boundaries = (stages - 1) * MICRO_BATCHES
        self.bytes = [last[key] / boundaries for key in ("bytes_forward", "bytes_backward")]
        self.memory = [run.memory[f"{stage}.0"]["VmHWM"] for stage in range(stages)]

    def bubble(self):
        """Per stage the share of the median step in which it computes nothing."""
        shares = []
        for stage in range(len(self.steps[0])):
            busy = [sum(seconds for _, _, seconds in step[stage]["actions"]) / step[stage]["period"]
                    for step in self.steps]
            shares.append(1 - statistics.median(busy))
        return shares

    def costs(self):
        """Per stage the median seconds of an action: forward, whole backward, update, weights."""

        def seconds(stage, name):
            found = [took for step in self.steps for word, _, took in step[stage]["actions"] if word == name]
            return statistics.median(found) if found else 0.0

        costs = []
        for stage in range(len(self.steps[0])):
            forward, backward, update, weights = (seconds(stage, name) for name in PARTS)
            costs.append([forward, backward + weights, update, weights])
        return costs


def simulated(simulate, schedule, depth, costs, size, bits_per_second):
    """Seconds of a step and mean bubble on machines of their own."""
    rate = bits_per_second / 8 * narrow_links.STREAM_SHARE
    link = [*size, rate, narrow_links.LATENCY]
    step = machinery.simulated_step(simulate, schedule, MICRO_BATCHES, depth, costs, link)
    return step["seconds"], statistics.mean(step["idle"]) / step["seconds"]


def show(simulate, taken, bits_per_second):
    print("schedule     depth  s/step  bubble by stage, %        simulated s  bubble, %  peak MiB")
    # What the parts of a backward take is known from the runs that split it.
    costs = taken["zero_bubble"][0].costs()
    forecasts = {}
    for schedule, runs in taken.items():
        seconds = statistics.median(run.seconds for run in runs)
        bubble = [statistics.median(shares) for shares in zip(*(run.bubble() for run in runs))]
        depth = runs[0].depth
        forecasts[schedule] = simulated(simulate, schedule, depth, costs, runs[0].bytes, bits_per_second)
        shares = " ".join(f"{100 * share:5.1f}" for share in bubble)
        peak = " ".join(f"{memory >> 20}" for memory in runs[0].memory)
        print(f"{schedule:11}  {depth:5}  {seconds:6.3f}  {shares:24}  {forecasts[schedule][0]:11.3f}"
              f"  {100 * forecasts[schedule][1]:9.1f}  {peak}")
    losses = {run.loss for runs in taken.values() for run in runs}
    print(f"the same loss in every run: {len(losses) == 1}")
    ratios = [a.seconds / b.seconds for a, b in zip(taken["1f1b"], taken["zero_bubble"])]
    print(f"1f1b / zero_bubble, real, by round: {' '.join(f'{ratio:.3f}' for ratio in ratios)}")
    ratio = forecasts["1f1b"][0] / forecasts["zero_bubble"][0]
    print(f"1f1b / zero_bubble, simulated: {ratio:.3f}")


def main():
    options = machinery.options_of(__doc__, stages=4, mbit=100.0, rounds=3, steps=12)
    narrow_links.enter_namespace()
    if options.quick:
        options.rounds, options.steps, options.stages = 1, 6, 2
    ports = [narrow_links.PORT + number for number in range(options.stages)]
    with machinery.scratch() as folder:
        make_bench(folder, options, ports)
        shape_ports(ports, options.mbit * 1e6)
        taken = {schedule: [] for schedule in SCHEDULES}
        for _ in range(options.rounds):
            for schedule, runs in taken.items():
                runs.append(Measurement(options.bin / "strait", folder, schedule, options.stages))
        show(options.bin / "simulate", taken, options.mbit * 1e6)


if __name__ == "__main__":
    sys.exit(main())
