"""What keeping replicas together costs on a narrow link: step times against no sync. See README.md.

usage: replica_links.py [--bin FOLDER] [--rounds 3] [--steps 14] [--times 10] [--methods METHOD ...] [--quick]

Two replicas of one stage, in a network namespace whose loopback is so narrow that a float16
all-reduce takes --times as long as the step's compute (0: as wide as it is). Beside what was
measured stands what `strait plan` says, for this pace and this link, and what it would say if coding
took no time. Exit code 77, with the reason, where such a namespace cannot be had.
"""

import json
import statistics
import subprocess
import sys
import time

import machinery
import narrow_links

REPLICAS = 2
PORTS = (narrow_links.PORT, "0xfffe")  # of the link between the replicas, and of their votes
WARM = 4  # steps before times count
NO_SYNC = "no sync"
METHODS = {
    NO_SYNC: {"sync.method": "diloco", "sync.every": 100000},
    "allreduce bfloat16": {"sync.method": "allreduce", "sync.wire_dtype": "bfloat16"},
    "cocktail": {"sync.method": "cocktail"}, "powersgd rank 2": {"sync.method": "powersgd"},
}
MORE_METHODS = {
    "allreduce": {"sync.method": "allreduce"}, "bytegrad": {"sync.method": "bytegrad"},
    "cocktail .5/.5/4": {"sync.method": "cocktail", "sync.random": 0.5, "sync.top": 0.5},
    "cocktail .12/1/1": {"sync.method": "cocktail", "sync.random": 0.12, "sync.top": 1, "sync.bits": 1},
}
ALL_METHODS = METHODS | MORE_METHODS


def make_bench(folder, steps, small):
    machinery.make_bench(folder, steps, small)
    settings = {
        "pipeline.stages": 1, "pipeline.replicas": REPLICAS, "train.steps": steps,
        "train.batch": 2 * machinery.MICRO_BATCHES * REPLICAS,
        "hosts.ports": f"{narrow_links.PORT}-{narrow_links.PORT + 1}", "hosts.shared_memory": False,
    }
    for name, method in ALL_METHODS.items():
        machinery.write_recipe(folder, narrow_links.file_name(name), settings | method)


def seconds_of_a_step(program, folder, name):
    own = narrow_links.file_name(name)
    machinery.Run(program, folder, f"{own}.toml")
    # Methods that sync now and then do so once more at the end.
    steps = machinery.metrics_of(folder, own)[WARM:-1]
    seconds = statistics.median(step["seconds"] for step in steps)
    return seconds, statistics.mean(step["bytes_sync"] for step in steps) / REPLICAS


def copied_bytes_per_second(size=1 << 26, times=9):
    """Read and written, as a probe would say."""
    one, other = bytearray(size), bytearray(size)
    seconds = []
    for _ in range(times):
        begun = time.monotonic()
        memoryview(other)[:] = one
        seconds.append(time.monotonic() - begun)
    return 2 * size / statistics.median(seconds)


class Forecast:
    """What the program's plan says of a step that takes so long without sync, on such a link."""

    def __init__(self, program, folder, alone, bits_per_second):
        self.program, self.folder = program, folder
        paces = self.plan(NO_SYNC)
        self.flops = 2e10 * paces["step_seconds"] / alone  # a thread is taken to have 2e10
        self.bits = bits_per_second or 4e9
        self.memory = copied_bytes_per_second()

    def plan(self, name, *words):
        file = narrow_links.file_name(name) + ".toml"
        command = [self.program, "plan", file, "--json", *words]
        printed = subprocess.run(command, cwd=self.folder, check=True, capture_output=True, text=True)
        return json.loads(printed.stdout)

    def slowdown(self, name, coding=True):
        (self.folder / "links.toml").write_text(
            f'[[hosts]]\nname = "localhost"\nthreads = 1\nflops_per_second = {self.flops:.0f}\n'
            f"memory_bytes_per_second = {self.memory if coding else 1e15:.0f}\n"
            f'[[links]]\nfrom = "localhost"\nto = "localhost"\nbits_per_second = {self.bits:.0f}\nseconds = 0\n'
        )
        plan = self.plan(name, "--set", "hosts.links=links.toml")
        return next(o for o in plan["sync_offers"] if o["method"] == plan["sync_method"])["slowdown"]


def parameters_of(folder):
    model = json.loads((folder / "model/config.json").read_text())
    width, tables = model["n_embd"], model["vocab_size"] + model["n_positions"]
    block = 12 * width * width + 13 * width
    return tables * width + model["n_layer"] * block + 2 * width


def main():
    options = machinery.options_of(__doc__, rounds=3, steps=14, times=10.0, methods=list(METHODS))
    narrow_links.enter_namespace()
    rounds, steps = (1, 8) if options.quick else (options.rounds, options.steps)
    program = options.bin / "strait"
    with machinery.scratch() as folder:
        make_bench(folder, steps, options.quick)
        narrow_links.shape(0)
        alone, _ = seconds_of_a_step(program, folder, NO_SYNC)
        reduced = 2 * 2 * (REPLICAS - 1) / REPLICAS * parameters_of(folder)  # float16, as a ring
        width = 0
        if options.times:
            width = reduced * 8 / (options.times * alone) / narrow_links.STREAM_SHARE
        narrow_links.shape(width, PORTS)
        forecast = Forecast(program, folder, alone, width * narrow_links.STREAM_SHARE)
        print(f"a step without sync takes {alone:.3f} s; a float16 all-reduce of {reduced / 1e6:.2f} MB")
        print(f"takes {options.times:g} times that at {width / 1e6:.2f} Mbit/s each way\n")
        print("method               s/step  times no sync  planned  without coding"
              "  sent a step and replica  float16 ÷ sent")
        taken = {method: [] for method in dict.fromkeys([NO_SYNC, *options.methods])}
        sent = {}
        for _ in range(rounds):
            for method, seconds in taken.items():
                step, sent[method] = seconds_of_a_step(program, folder, method)
                seconds.append(step)
        for method, seconds in taken.items():
            ratio = statistics.median(mine / none for mine, none in zip(seconds, taken[NO_SYNC]))
            print(f"{method:19}  {statistics.median(seconds):6.3f}  {ratio:13.3f}"
                  f"  {forecast.slowdown(method):7.3f}  {forecast.slowdown(method, False):14.3f}"
                  f"  {sent[method] / 1e3:20.1f} kB  {reduced / sent[method]:14.1f}")


if __name__ == "__main__":
    sys.exit(main())
