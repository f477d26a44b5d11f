"""The benches run from end to end on tiny models and print their tables. Nothing is judged by time or memory.

A few of them here; all with STRAIT_CAMPAIGNS=1 (`./strait test --all`). Names on the command line: these only.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
BUILD = pathlib.Path(os.environ["STRAIT_BUILD"])
SKIPPED = 77
METHODS = {"allreduce", "cocktail", "diloco", "streaming_diloco", "noloco", "onebit_adam", "bytegrad", "powersgd"}

# The scripts, what each prints, and the words that make it shorter still.
SCRIPTS = {
    "against_ddp": (["DDP PowerSGD rank 2", "cocktail", "load"], []),
    "batched_generation": (["prompts together", "strait with 8 against 1"], []),
    "beside_saving": (["stands still", "pause", "beside"], []),
    "busy_stages": (["tokens a second", "stage 0 busy"], []),
    "cache_quality": (["loss of", "the same likeliest token"], []),
    "flows": (["now   "], []),
    "forecast_runs": (["first/run", "2 stages, 100 Mbit/s", "probed: median error"], []),
    "host_start": (["2 stages on as many hosts", "to the first step", "  connected", "CPU agents"], []),
    "machinery": (["measured / forecast", "measured / replayed", "2 stages, 1.0: peak", "first step"], []),
    "many_processes": (["MiB a process", "        6  "], []),
    "memory_plan": (["one stage                 0.0", "lora on int4              0.0", "powersgd                  0.1"], []),
    "narrow_links": (["it needs", "raw fp32", "delta 4/8"], ["--codecs", "delta 4/8"]),
    "offload": (["cpu        disk", "/ none"], []),
    "preparation": (["first_fit: padding", "single: padding", "4 MB of text", "MiB held"], []),
    "quantized_base": (["2 stages, nf4   1.0", "of a float32 base", "fits for 6 GB"], []),
    "replica_links": (["a step without sync", "cocktail", "powersgd"], []),
    "simulated_links": (["forecast of the simulated run", "simulated: "], []),
    "slow_link": (["link: ", "6/6", "auto", "a step (bfloat16"], ["--codecs", "6/6", "auto"]),
    "slices": (["slices  one stage", "     4  "], []),
    "small_clusters": (["cluster   chosen", "blocks (and ends) of each host"], []),
    "tied_table": (["of both tables", "random", "memory"], []),
    "training_step": (["gpt2-124m", "strait", "eager", "load"], []),
    "waiting_threads": (["spin", "passive", "own", "load"], []),
    "watching": (["a step with prometheus, tensorboard, watch, status / alone", "Prometheus was asked", "spans of a process",
                  "terminal, unread / nowhere", "processor time of the launcher", "processor time of strait status saving"], []),
    "yielding": (["a flood alone:", "against a flood", "two in the background:", "alone ", "beside a background"], []),
    "zero_bubble": (["the same loss in every run: True", "simulated:", "zero_bubble"], []),
}
USUAL = ["coding_bench", "machinery", "memory_plan", "simulated_links", "slow_link", "zero_bubble"]


def run_script(name):
    """Whether the bench can run here; ends the test where it fails, or prints none of what is expected of it."""
    expected, words = SCRIPTS[name]
    command = [sys.executable, "-B", HERE / f"{name}.py", "--quick", "--bin", os.environ["STRAIT_BIN"], *words]
    done = subprocess.run(command, capture_output=True, text=True)
    print(done.stdout, done.stderr, sep="\n", flush=True)
    missing = [words for words in expected if words not in done.stdout]
    if done.returncode not in (0, SKIPPED) or (missing and done.returncode == 0):
        sys.exit(f"{name} ended with {done.returncode}, without: {missing}")
    return done.returncode == 0


def built(target, *words):
    """Builds an on-demand program, runs it and returns what it printed."""
    subprocess.run(["cmake", "--build", BUILD, "--target", target], check=True, stdout=subprocess.DEVNULL)
    printed = subprocess.run([BUILD / "bin" / target, *words], check=True, capture_output=True, text=True).stdout
    print(printed, flush=True)
    return printed


def attention_bench():
    printed = built("attention_bench", "1", "128")
    for way in ("by document", "window of an eighth", "dropout", "libtorch, mask"):
        assert printed.count(way) == 3, printed
    assert printed.count("libtorch, causal") == 1, printed


def shares_of_memcpy(target, what, size, names, expected):
    """A row for each of the expected, as a share of what memcpy takes."""
    title = f"{what} per second, as a share of memcpy's"
    printed = built(target, f"--benchmark_filter=(copy|{names})/{size}$", "--benchmark_min_time=0.001")
    assert title in printed, printed
    table = dict(re.findall(rf"^(\S.*?)/{size} +[\d.]+ GB/s +([\d.]+) %$", printed.split(title)[1], re.MULTILINE))
    assert set(table) == {"copy"} | expected, printed
    assert float(table["copy"]) == 100 and all(float(share) > 0 for share in table.values()), table


def cocktail_bench():
    shares_of_memcpy("cocktail_bench", "bytes of weights", 1048576, "0.1 0.2 4 bits",
                     {f"{what} 0.1 0.2 4 bits" for what in ("encode", "reduce", "decode", "apply")})


def quantize_bench():
    coded = {f"{way} change 4 bits" for way in ("encode", "decode")}
    shares_of_memcpy("quantize_bench", "float32 bytes", 32, "code change 4 bits", coded | {f"operators: {one}" for one in coded})


def coding_bench():
    printed = built("coding_bench", "1", "18")
    rows = re.findall(r"^(\w+).*? +([\d.]+) +([\d.]+)$", printed, re.MULTILINE)
    assert {name for name, _, _ in rows} == METHODS, printed
    assert all(float(engine) > 0 and float(trainer) > 0 for _, engine, trainer in rows), printed


def coordinator_bench():
    printed = built("coordinator_bench")
    rows = re.findall(r"^ *(\d+) +([\d.]+) +([\d.]+)$", printed, re.MULTILINE)
    assert [int(stages) for stages, _, _ in rows] == [10, 100, 1000], printed
    # Of the most stages: the cost of few is below what the clock of the processor shows.
    assert float(rows[-1][1]) > 0 and float(rows[-1][2]) > 0, printed


def transfer_bench():
    hosts, megabytes, megabits = 4, 8, 80
    sizes = [str(hosts), str(megabytes), str(megabits)]
    by = {way: json.loads(built("transfer_bench", "hosts", way, "same", *sizes)) for way in ("single", "chain")}
    whole = hosts * megabytes * 1_000_000
    assert all(counts["fetched"] == whole for counts in by.values()), by
    assert by["single"]["sent_by_launcher"] >= whole, "every host has the file from the launcher alone"
    assert by["chain"]["sent_by_launcher"] < whole, "each host has the file from the one before"


def link_bench():
    rows = [json.loads(line) for line in built("link_bench", "20", "1", "1048576").splitlines()]
    assert [row["memory"] for row in rows] == [False, True], rows
    assert all(row["gb_per_second"] > 0 and row["cpu_seconds_per_gb"] > 0 for row in rows), rows


PROGRAMS = {one.__name__: one for one in (attention_bench, cocktail_bench, coding_bench, coordinator_bench, link_bench,
                                          quantize_bench, transfer_bench)}


def main():
    names = sys.argv[1:] or (sorted([*SCRIPTS, *PROGRAMS]) if os.environ.get("STRAIT_CAMPAIGNS") else USUAL)
    if not (BUILD / "kernels").is_dir():
        print("this build is without libtorch")
        return SKIPPED
    for name in names:
        print(f"=== {name}", flush=True)
        if name in PROGRAMS:
            PROGRAMS[name]()
        elif not run_script(name):
            print(f"{name} cannot run here")
    return 0


if __name__ == "__main__":
    sys.exit(main())
