"""What our machinery costs, as ratios in one run. See README.md in this folder.

usage: machinery.py [--bin FOLDER] [--rounds 5] [--steps 12] [--quick]
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/processes"))

import runs

MIB = 1 << 20
SEED = 1

MODEL = {
    "model_type": "gpt2", "vocab_size": 257, "n_positions": 256, "n_embd": 192, "n_layer": 4, "n_head": 6,
    "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0, "tie_word_embeddings": True,
}
MICRO_BATCHES = 4

# What the recipes of the benches say, where they say nothing else.
RECIPE = {
    "seed": SEED, "model.path": "model", "model.weights": "random", "data.train": "text.txt", "data.tokenizer": "bytes",
    "data.row": MODEL["n_positions"], "pipeline.threads": 1, "train.batch": 2 * MICRO_BATCHES, "train.micro_batch": 2,
    "train.learning_rate": 1e-3,
}


def options_of(doc, **defaults):
    """What the command line says: --bin, --quick and an option for each of these: a list, or a dictionary to choose from,
    takes several values, False is a flag."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=os.environ.get("STRAIT_BIN", ROOT / "build/release/bin"))
    parser.add_argument("--quick", action="store_true", help="tiny: shows only that it works")
    for name, default in defaults.items():
        if default is False:
            parser.add_argument(f"--{name}", action="store_true")
        elif isinstance(default, dict):
            parser.add_argument(f"--{name}", nargs="*", choices=default, default=list(default))
        elif isinstance(default, list):
            parser.add_argument(f"--{name}", nargs="*", type=type(default[0]) if default else str, default=default)
        else:
            parser.add_argument(f"--{name}", type=str if default is None else type(default), default=default)
    options = parser.parse_args()
    options.bin = options.bin.resolve()
    return options


@contextlib.contextmanager
def scratch(folder=None):
    """An empty folder. The load of the machine is printed before and after."""
    print(f"seed {SEED}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(dir=folder) as name:
        yield pathlib.Path(name)
    print(f"load {os.getloadavg()[0]:.1f}")


def write_recipe(folder, name, settings):
    """`name`.toml, of RECIPE and these: dotted key -> value, None leaves the key out."""
    text = runs.recipe_text({"name": name, **RECIPE, **settings})
    (folder / f"{name}.toml").write_text(text)


def write_text(folder, row, lines):
    """text.txt. Lines of equal length: every row is full, so that all micro-batches are equal work."""
    line = "the quick brown fox jumps over the lazy dog; " * 8
    (folder / "text.txt").write_text("\n".join(line[:row] for _ in range(lines)) + "\n")


def metrics_of(folder, name):
    """Of the steps of a run that has ended."""
    return runs.Run(folder / "runs" / name).metrics()


class Run:
    """One `strait run --json`, with its processes' memory looked at after every step."""

    def __init__(self, program, folder, recipe, words=()):
        self.lines, self.arrived, self.memory = [], [], {}
        begun = time.monotonic()
        command = [program, "run", recipe, "--json", "--replace", *words]
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                self.arrived.append(time.monotonic() - begun)
                self.lines.append(json.loads(line))
                if self.lines[-1]["event"] == "step":
                    self.look_at_memory()
        self.seconds = time.monotonic() - begun
        if process.returncode != 0:
            ended = self.events("ended") or self.lines[-1:]
            raise SystemExit(f"{command} ended with {process.returncode}: {ended}")

    def events(self, name):
        return [line for line in self.lines if line["event"] == name]

    def first(self, name):
        return next(at for at, line in zip(self.arrived, self.lines) if line["event"] == name)

    def look_at_memory(self):
        for hello in self.events("connected"):
            try:
                text = pathlib.Path(f"/proc/{hello['pid']}/status").read_text()
            except OSError:
                continue  # it has left already: the reading before stands
            fields = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
            if "VmHWM" in fields:
                self.memory[hello["process"]] = {
                    key: int(fields[key].split()[0]) * 1024
                    for key in ("VmHWM", "RssAnon", "RssFile")
                }


def make_bench(folder, steps, small):
    model = dict(MODEL, n_embd=64, n_layer=2, n_head=2) if small else MODEL
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(model))
    write_text(folder, model["n_positions"], 400)
    for stages in (1, 2):
        settings = {"pipeline.stages": stages, "train.steps": steps}
        write_recipe(folder, f"stages{stages}", settings)


def steps_of(trace):
    """Per process its steps: the actions in their order, waits left out, and when they ended."""
    names, spans = {}, {}
    for event in trace["traceEvents"]:
        if event["ph"] == "M" and event["name"] == "process_name":
            names[event["pid"]] = event["args"]["name"].split()[-1]
        elif event["ph"] == "X" and event["cat"] in ("compute", "wait"):
            spans.setdefault(event["pid"], []).append(event)
    processes = {}
    for pid, events in spans.items():
        steps = [{"actions": []}]
        for event in sorted(events, key=lambda event: event["ts"]):
            step = steps[-1]
            step.setdefault("begin", event["ts"] / 1e6)
            if event["cat"] == "wait":
                continue
            place = event["args"].get("micro_batch")
            step["actions"].append((event["name"], place, event["dur"] / 1e6))
            if event["name"] == "update":
                step["end"] = (event["ts"] + event["dur"]) / 1e6
                steps.append({"actions": []})
        steps.pop()
        for earlier, later in zip(steps, steps[1:]):
            later["between"] = later["begin"] - earlier["end"]
            later["period"] = later["end"] - earlier["end"]
        # Memory is still being found in the first two steps.
        processes[names[pid]] = steps[2:]
    return processes


def measure(program, folder, stages):
    run = Run(program, folder, f"stages{stages}.toml")
    return run, steps_of(json.loads((folder / f"runs/stages{stages}/trace.json").read_text()))


def mean_of(step, name):
    return statistics.mean(seconds for word, _, seconds in step["actions"] if word == name)


def cost_of(step):
    """Forward, backward, and once per step the update with what lies before the next forward."""
    update = mean_of(step, "update") + step["between"]
    return [mean_of(step, "forward"), mean_of(step, "backward"), update]


def simulated_step(simulate, schedule, micro_batches, depth, costs, link=(0, 0, 0, 0)):
    """What the simulator says of a step. Of each stage its costs; of every link between two stages
    bytes forward and backward of a micro-batch, bytes a second, and seconds of latency."""
    lines = [f"{schedule} {len(costs)} {micro_batches} {depth}"]
    lines += [" ".join(map(repr, cost)) for cost in costs]
    lines += [" ".join(map(repr, link))] * (len(costs) - 1)
    done = subprocess.run([simulate], input="\n".join(lines), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def forecast(simulate, costs):
    """Seconds of a step on links that take no time."""
    return simulated_step(simulate, "1f1b", MICRO_BATCHES, 0, costs)["seconds"]


def replay(steps):
    """The same, but every action takes the time that it really took: what jitter costs is in it."""
    ends, clocks, done = {}, [0.0] * len(steps), [0] * len(steps)
    while any(done[s] < len(step["actions"]) - 1 for s, step in enumerate(steps)):
        for s, step in enumerate(steps):
            name, place, seconds = step["actions"][done[s]]
            neighbour = s - 1 if name == "forward" else s + 1
            awaited = (name, place, neighbour)
            if name == "update" or (0 <= neighbour < len(steps) and awaited not in ends):
                continue
            clocks[s] = max(clocks[s], ends.get(awaited, 0.0)) + seconds
            ends[name, place, s] = clocks[s]
            done[s] += 1
    return max(clocks) + mean_of(steps[0], "update") + steps[0]["between"]


def show_speed(simulate, rounds):
    print("\none process and two stages, alternating; seconds per step, medians over steps")
    print("round  one process  two stages  forecast  replayed  measured/forecast  /replayed")
    ratios, against_replay, speed_ups = [], [], []
    for number, (one, two) in enumerate(rounds):
        steps = list(zip(two["0.0"], two["1.0"]))
        forecasts = [forecast(simulate, [cost_of(step) for step in both]) for both in steps]
        replayed = [replay(both) for both in steps]
        real = [both[0]["period"] for both in steps]
        # Each step against its own forecast: a busy machine slows both alike.
        ratios.append([a / b for a, b in zip(real, forecasts)])
        against_replay.append([a / b for a, b in zip(real, replayed)])
        alone = statistics.median(step["period"] for step in one["0.0"])
        speed_ups.append(alone / statistics.median(real))
        print(f"{number:5}  {alone:11.4f}  {statistics.median(real):10.4f}"
              f"  {statistics.median(forecasts):8.4f}  {statistics.median(replayed):8.4f}"
              f"  {statistics.median(ratios[-1]):17.3f}  {statistics.median(against_replay[-1]):9.3f}")
    for index, name in enumerate(("forward", "backward", "update")):
        alone, first, second = (statistics.median(cost_of(step)[index] for r in rounds for step in r[run][process])
                                for run, process in ((0, "0.0"), (1, "0.0"), (1, "1.0")))
        print(f"{name}: one process {alone:.4f}, stages {first:.4f} + {second:.4f},"
              f" sum / one process {(first + second) / alone:.3f}")
    ratio = statistics.median(sum(ratios, []))
    print(f"measured / forecast {ratio:.3f} (goal: at most 1.05)")
    ratio = statistics.median(sum(against_replay, []))
    print(f"measured / replayed {ratio:.3f} (links and threads)")
    print(f"speed-up of two stages over one process {statistics.median(speed_ups):.3f}")


def show_memory(plans, runs):
    print("\nmemory of a process (MiB): peak, state and activations as planned, what is beyond")
    for stages, run in runs.items():
        plan = {process["name"]: process for process in plans[stages]["processes"]}
        for process, memory in sorted(run.memory.items()):
            state = plan[process]["state_bytes"] / MIB
            kept = plan[process]["activation_bytes"] / MIB
            peak, anonymous, mapped = (memory[key] / MIB for key in ("VmHWM", "RssAnon", "RssFile"))
            print(f"{stages} stages, {process}: peak {peak:.0f}, state {state:.0f}, activations "
                  f"{kept:.0f}, beyond {peak - state - kept:.0f} (goal: at most 250); now anonymous "
                  f"{anonymous:.0f}, mapped files {mapped:.0f}")


def show_start(program, folder, times):
    print("\nthe quickstart, seconds from the command on: medians of", times)
    os.symlink(ROOT / "recipes", folder / "recipes")
    recipe = "recipes/quickstart.toml"
    words = ["--set", "train.steps=2", "--set", "name=start"]
    runs = [Run(program, folder, recipe, words) for _ in range(times)]
    for name, text in (
        ("plan", "the plan is made, the data packed"), ("connected", "a stage process says hello"),
        ("training", "all have loaded and are connected"), ("step", "the first step is finished (goal: at most 3)"),
        ("ended", "two steps, evaluation, checkpoint, all processes gone"),
    ):
        print(f"{statistics.median(run.first(name) for run in runs):7.2f}  {text}")
    print(f"{statistics.median(run.seconds for run in runs):7.2f}  the command has returned")


def main():
    options = options_of(__doc__, rounds=5, steps=12)
    rounds, steps = (1, 6) if options.quick else (options.rounds, options.steps)
    program, simulate = options.bin / "strait", options.bin / "simulate"
    with scratch() as folder:
        make_bench(folder, steps, options.quick)
        plans, runs, measured = {}, {}, []
        for stages in (1, 2):
            command = [program, "plan", f"stages{stages}.toml", "--json"]
            plans[stages] = json.loads(subprocess.check_output(command, cwd=folder))
        for _ in range(rounds):
            pair = []
            for stages in (1, 2):
                runs[stages], taken = measure(program, folder, stages)
                pair.append(taken)
            measured.append(pair)
        show_speed(simulate, measured)
        show_memory(plans, runs)
        show_start(program, folder, 1 if options.quick else 3)


if __name__ == "__main__":
    sys.exit(main())
