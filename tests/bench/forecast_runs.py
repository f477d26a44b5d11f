"""Forecasts of strait plan against real runs on this machine, over simulated links. See README.md.

usage: forecast_runs.py [--bin FOLDER] [--steps 14] [--cases PATTERN ...] [--quick]

Each case is planned twice, as a first plan and with the speeds that strait probe measures, and run once.
--cases: only those whose names match one of these regular expressions.
"""

import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import tempfile

import machinery

EPOCH = 4  # steps; later ones send changes where a codec caches
WARM = 1 + EPOCH
ROUNDS = 4  # steps between rounds of replicas that train apart
WIDE = {"n_embd": 256, "n_layer": 8, "n_head": 4}
NARROW = {"n_embd": 32, "n_layer": 8, "n_head": 2}
BITS_4_8 = {"codec.forward": "fixed", "codec.backward": "fixed", "codec.forward_bits": 4, "codec.backward_bits": 8}
DELTA = {"codec.forward": "delta", "codec.backward": "fixed", "codec.forward_bits": 4, "codec.backward_bits": 8}


def link(megabits, milliseconds=0):
    return {"hosts.simulate.rate": f"{megabits}Mbit/s", "hosts.simulate.delay": f"{milliseconds}ms"}


def cases():
    """Name -> settings. Rates are such that links take from a tenth to twice of what compute takes."""
    found = {}
    for stages in (1, 2, 4):
        found[f"{stages} stages"] = {"pipeline.stages": stages}
        found[f"{stages} stages, recompute"] = {"pipeline.stages": stages, "model.recompute": "layer"}
    for rate in (20, 50, 100, 400):
        found[f"2 stages, {rate} Mbit/s"] = {"pipeline.stages": 2, **link(rate)}
    for stages in (2, 4):
        found[f"{stages} stages, 100 Mbit/s, 20 ms"] = {"pipeline.stages": stages, **link(100, 20)}
    for depth in (0, 1, 2):
        found[f"2 stages, 50 Mbit/s, 20 ms, depth {depth}"] = {
            "pipeline.stages": 2, "pipeline.depth": depth, **link(50, 20)}
    for schedule in ("gpipe", "zero_bubble", "interleaved"):
        found[f"2 stages, {schedule}"] = {"pipeline.stages": 2, "pipeline.schedule": schedule}
        found[f"2 stages, {schedule}, 50 Mbit/s, 20 ms"] = {
            "pipeline.stages": 2, "pipeline.schedule": schedule, **link(50, 20)}
    for name, codec in (("4/8", BITS_4_8), ("delta 4/8", DELTA)):
        for rate in (5, 10, 50):
            found[f"2 stages, {name}, {rate} Mbit/s"] = {"pipeline.stages": 2, **codec, **link(rate)}
    found["4 stages, 4/8, 20 Mbit/s, 20 ms"] = {"pipeline.stages": 4, **BITS_4_8, **link(20, 20)}
    for method in ("allreduce", "cocktail", "powersgd", "diloco", "streaming_diloco"):
        settings = {"pipeline.stages": 1, "pipeline.replicas": 2, "sync.method": method}
        if "diloco" in method:
            settings["sync.every"] = ROUNDS
        found[f"2 replicas, {method}, 200 Mbit/s"] = settings | link(200)
        found[f"2 replicas, {method}, 200 Mbit/s, 50 ms"] = settings | link(200, 50)
    found["2 x 2, cocktail, 100 Mbit/s"] = {
        "pipeline.stages": 2, "pipeline.replicas": 2, "sync.method": "cocktail", **link(100)}
    return found


def make_bench(folder, size, row, rows):
    (folder / "model").mkdir()
    config = {"model_type": "gpt2", "vocab_size": 257, "n_positions": row, "tie_word_embeddings": False}
    (folder / "model/config.json").write_text(json.dumps(config | size))
    chance = random.Random(1)
    (folder / "text.txt").write_text("".join(chance.choice("abcdefgh \n") for _ in range(rows * row)))


def strait(options, folder, *words):
    command = [options.bin.resolve() / "strait", *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def forecast(options, folder, *words):
    return json.loads(strait(options, folder, "plan", "case.toml", "--json", *words))["load"]["step_seconds"]


def measured(options, folder, rounds):
    strait(options, folder, "run", "case.toml", "--replace")
    # The last step ends with a round, whichever step it is.
    steps = machinery.metrics_of(folder, "case")[WARM:-1]
    taken = [step["seconds"] - step["checkpoint_seconds"] for step in steps]
    # Rounds of replicas come once in some steps.
    return statistics.mean(taken) if rounds else statistics.median(taken)


def show_parts(options, folder):
    """The parts of a step that differ most, where a run measures them."""
    status = json.loads(strait(options, folder, "status", "case", "--json"))
    for part in status.get("parts", [])[1:4]:
        if part["measured_seconds"] is not None:
            print(f"    {part['part']}: {part['forecast_seconds']:.3f} s, measured {part['measured_seconds']:.3f}")


def show_errors(what, ratios):
    errors = sorted(abs(ratio - 1) for ratio in ratios)
    print(f"{what}: median error {statistics.median(errors):.1%}, worst {errors[-1]:.1%}, of {len(errors)} runs")


def main():
    options = machinery.options_of(__doc__, steps=WARM + 9, cases=[""])
    row, batch = (32, 8) if options.quick else (128, 16)
    chosen = {name: case for name, case in cases().items() if any(re.search(one, name) for one in options.cases)}
    if options.quick:
        options.steps = WARM + 3
        chosen = {name: chosen[name] for name in ("1 stages", "2 stages, 100 Mbit/s") if name in chosen}
    print(f"seconds a step; load {os.getloadavg()[0]:.1f}")
    print(f"{'':44} first plan     probed    run  first/run  probed/run")
    first_ratios, probed_ratios = [], []
    for name, settings in chosen.items():
        with tempfile.TemporaryDirectory() as place:
            folder = pathlib.Path(place)
            make_bench(folder, NARROW if options.quick else WIDE, row, batch * EPOCH)
            common = {"data.row": row, "train.batch": batch, "train.steps": options.steps, "checkpoint.every": 0,
                      "train.micro_batch": batch // 8 if "replicas" not in name else batch // 4,
                      "train.learning_rate": 1e-4}
            machinery.write_recipe(folder, "case", common | settings)
            first = forecast(options, folder)
            strait(options, folder, "probe", "case.toml", "-o", "speeds.toml")
            probed = forecast(options, folder, "--set", "hosts.links=speeds.toml")
            taken = measured(options, folder, "sync.every" in settings)
            first_ratios.append(first / taken)
            probed_ratios.append(probed / taken)
            print(f"{name:44} {first:10.3f} {probed:10.3f} {taken:6.3f} {first / taken:10.2f} {probed / taken:11.2f}",
                  flush=True)
            show_parts(options, folder)
    show_errors("first plan", first_ratios)
    show_errors("probed", probed_ratios)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
