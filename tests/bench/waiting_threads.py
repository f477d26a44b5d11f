"""How a stage's threads wait for each other: tokens a second, idle and beside busy programs. See README.md.

usage: waiting_threads.py [--bin FOLDER] [--rounds 3] [--seconds 4] [--stages 1] [--threads 1 2] [--load 0 4]
                          [--ways spin passive own 1000] [--models small wide] [--quick]

Ways: `spin` is OpenMP's default, `passive` sleeps, a number is GOMP_SPINCOUNT, `own` leaves it to strait.
"""

import json
import os
import signal
import statistics
import subprocess
import sys

import machinery

WARM = 3  # steps before times count
ROW = 128
MODELS = {"small": {"n_embd": 128, "n_head": 4}, "wide": {"n_embd": 384, "n_head": 6}}
SET = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
DEFAULT_SPINS = "300000"  # of libgomp, where nothing is set


class Load:
    """Programs that keep a core busy each."""

    def __init__(self, count):
        self.count = count

    def __enter__(self):
        words = ["sh", "-c", "while :; do :; done"]
        self.programs = [subprocess.Popen(words) for _ in range(self.count)]

    def __exit__(self, *error):
        for program in self.programs:
            program.kill()
            program.wait()


def environment(way):
    bare = {name: value for name, value in os.environ.items() if name not in SET}
    if way == "own":
        return bare
    if way == "passive":
        return bare | {"OMP_WAIT_POLICY": "passive"}
    return bare | {"GOMP_SPINCOUNT": DEFAULT_SPINS if way == "spin" else way}


def make_bench(folder):
    machinery.write_text(folder, ROW, 400)
    for name, sizes in MODELS.items():
        (folder / name).mkdir()
        config = dict(machinery.MODEL, n_positions=ROW, **sizes)
        (folder / name / "config.json").write_text(json.dumps(config))


def tokens_per_second(program, folder, way, seconds):
    """Of all steps after the first ones: with others on the cores they differ a lot."""
    steps = []
    command = [program, "run", "bench.toml", "--json", "--replace"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True, env=environment(way)) as process:
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] != "step":
                continue
            steps.append(event)
            if len(steps) > WARM and sum(step["seconds"] for step in steps[WARM:]) >= seconds:
                break
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        process.stdout.read()
    counted = steps[WARM:]
    return sum(step["tokens"] for step in counted) / sum(step["seconds"] for step in counted)


def measure(program, folder, load, options):
    """The rates of each way, in turn."""
    taken = {way: [] for way in options.ways}
    with Load(load):
        for _ in range(options.rounds):
            for way, rates in taken.items():
                rates.append(tokens_per_second(program, folder, way, options.seconds))
    return taken


def main():
    options = machinery.options_of(__doc__, rounds=3, seconds=4.0, stages=1, threads=[1, os.cpu_count()],
                                   load=[0, 2 * os.cpu_count()], ways=["spin", "passive", "own"], models=MODELS)
    if options.quick:
        options.rounds, options.seconds, options.models, options.threads = 1, 0, ["small"], [1]
    program = options.bin / "strait"
    with machinery.scratch() as folder:
        print("model  threads  load  way        tokens/s  to the first  lowest  highest")
        make_bench(folder)
        for model in options.models:
            for threads in options.threads:
                settings = {
                    "model.path": model, "data.row": ROW, "pipeline.stages": options.stages,
                    "pipeline.threads": threads, "train.steps": 10**6, "train.batch": 16, "train.micro_batch": 4,
                    "checkpoint.every": 0,
                }
                machinery.write_recipe(folder, "bench", settings)
                for load in options.load:
                    taken = measure(program, folder, load, options)
                    first = next(iter(taken.values()))
                    for way, rates in taken.items():
                        ratio = statistics.median(a / b for a, b in zip(rates, first))
                        print(f"{model:5}  {threads:7}  {load:4}  {way:9}  {statistics.median(rates):8.0f}"
                              f"  {ratio:12.2f}  {min(rates):6.0f}  {max(rates):7.0f}",
                              flush=True)


if __name__ == "__main__":
    sys.exit(main())
