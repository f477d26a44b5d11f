"""What keeping replicas together costs on a narrow link: step times against no sync. See README.md.

usage: replica_links.py [--bin FOLDER] [--rounds 3] [--steps 14] [--times 10] [--quick]

Two replicas of one stage, in a network namespace whose loopback is so narrow that a float16
all-reduce takes --times as long as the step's compute. Exit code 77, with the reason, where such a
namespace cannot be had.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile

import machinery
import narrow_links

REPLICAS = 2
PORTS = (narrow_links.PORT, "0xfffe")  # of the link between the replicas, and of their votes
WARM = 4  # steps before times count
NO_SYNC = "no sync"
METHODS = {
    NO_SYNC: 'method = "diloco"\nevery = 100000',
    "allreduce bfloat16": 'method = "allreduce"\nwire_dtype = "bfloat16"',
    "cocktail": 'method = "cocktail"',
    "powersgd rank 2": 'method = "powersgd"',
}
RECIPE_END = """
[hosts]
ports = "47000-47001"
[sync]
"""


def make_bench(folder, steps, small):
    machinery.make_bench(folder, steps, small)
    recipe = (folder / "stages1.toml").read_text()
    batch = 2 * machinery.MICRO_BATCHES
    recipe = recipe.replace(f"batch = {batch}", f"batch = {batch * REPLICAS}")
    recipe = recipe.replace("[pipeline]", f"[pipeline]\nreplicas = {REPLICAS}")
    for name, words in METHODS.items():
        own = narrow_links.file_name(name)
        file = folder / f"{own}.toml"
        file.write_text(recipe.replace('"stages1"', f'"{own}"') + RECIPE_END + words + "\n")


def seconds_of_a_step(program, folder, name):
    own = narrow_links.file_name(name)
    run = machinery.Run(program, folder, f"{own}.toml")
    lines = (folder / f"runs/{own}/metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line) for line in lines]
    # Methods that sync now and then do so once more at the end.
    steps = steps[WARM:-1]
    seconds = statistics.median(step["seconds"] for step in steps)
    return seconds, statistics.mean(step["bytes_sync"] for step in steps) / REPLICAS


def parameters_of(folder):
    model = json.loads((folder / "model/config.json").read_text())
    width, tables = model["n_embd"], model["vocab_size"] + model["n_positions"]
    block = 12 * width * width + 13 * width
    return tables * width + model["n_layer"] * block + 2 * width


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", default=os.environ.get("STRAIT_BIN", "build/release/bin"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--times", type=float, default=10)
    parser.add_argument("--quick", action="store_true", help="tiny: shows only that it works")
    options = parser.parse_args()
    narrow_links.enter_namespace()
    rounds, steps = (1, 8) if options.quick else (options.rounds, options.steps)
    program = pathlib.Path(options.bin).resolve() / "strait"
    print(f"seed {machinery.SEED}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_bench(folder, steps, options.quick)
        narrow_links.shape(0)
        alone, _ = seconds_of_a_step(program, folder, NO_SYNC)
        reduced = 2 * 2 * (REPLICAS - 1) / REPLICAS * parameters_of(folder)  # float16, as a ring
        width = reduced * 8 / (options.times * alone) / narrow_links.STREAM_SHARE
        narrow_links.shape(width, PORTS)
        print(f"a step without sync takes {alone:.3f} s; a float16 all-reduce of {reduced / 1e6:.2f} MB")
        print(f"takes {options.times:g} times that at {width / 1e6:.2f} Mbit/s each way\n")
        print("method               s/step  times no sync  sent a step and replica  float16 ÷ sent")
        taken = {method: [] for method in METHODS}
        sent = {}
        for _ in range(rounds):
            for method, seconds in taken.items():
                step, sent[method] = seconds_of_a_step(program, folder, method)
                seconds.append(step)
        for method, seconds in taken.items():
            ratio = statistics.median(mine / none for mine, none in zip(seconds, taken[NO_SYNC]))
            print(
                f"{method:19}  {statistics.median(seconds):6.3f}  {ratio:13.3f}"
                f"  {sent[method] / 1e3:20.1f} kB  {reduced / sent[method]:14.1f}"
            )
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    sys.exit(main())
