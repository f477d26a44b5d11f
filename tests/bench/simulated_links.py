"""Steps over simulated links (hosts.simulate) against steps over network namespaces that are shaped
alike. See README.md.

usage: simulated_links.py [--bin FOLDER] [--netlab PROGRAM] [--rounds 3] [--steps 12]
                          [--rate 100] [--delay 20] [--quick]

Two stages. --netlab: a program that makes namespaces lab0, lab1 and lab2 joined by links of a rate and
a delay ("netlab up FILE", root); without it only the simulated run and the forecast are shown.
"""

import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import machinery

WARM = 2  # steps before times count
HOSTS = ["10.77.0.1", "10.77.0.2"]
LAUNCHER = "10.77.0.3"
BIG = {"n_embd": 256, "n_layer": 4, "n_head": 4, "row": 128, "batch": 16}
SMALL = {"n_embd": 32, "n_layer": 2, "n_head": 2, "row": 32, "batch": 4}


def make_bench(folder, size):
    (folder / "model").mkdir()
    config = {"model_type": "gpt2", "vocab_size": 257, "n_positions": size["row"]}
    config |= {"tie_word_embeddings": False}
    config |= {key: size[key] for key in ("n_embd", "n_layer", "n_head")}
    (folder / "model/config.json").write_text(json.dumps(config))
    chance = random.Random(1)
    text = "".join(chance.choice("abcdefgh \n") for _ in range(64 * size["row"]))
    (folder / "text.txt").write_text(text)


def write_recipe(folder, name, size, steps, hosts):
    settings = {
        "data.row": size["row"], "pipeline.stages": 2, "train.steps": steps, "train.batch": size["batch"],
        "train.micro_batch": size["batch"] // 4, "train.learning_rate": 1e-4, "checkpoint.every": 0,
    }
    machinery.write_recipe(folder, name, settings | hosts)


def step_seconds(folder, name):
    """The median step of a run that has ended."""
    return statistics.median(step["seconds"] for step in machinery.metrics_of(folder, name)[WARM:])


def run_local(programs, folder, name):
    subprocess.run([programs / "strait", "run", f"{name}.toml", "--replace"], cwd=folder, check=True,
                   stdout=subprocess.DEVNULL)
    return step_seconds(folder, name)


def inside(namespace, *words):
    return ["ip", "netns", "exec", namespace, *map(str, words)]


def run_apart(programs, folder):
    """The launcher in lab2, a stage in lab0 and one in lab1; they join by tokens."""
    words = inside("lab2", programs / "strait", "run", "apart.toml", "--replace")
    started = [subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL)]
    tokens = [folder / f"runs/apart/join/{host}.token" for host in range(2)]
    while not all(token.exists() for token in tokens):
        assert started[0].poll() is None, "the launcher has ended"
        time.sleep(0.02)
    for host, token in enumerate(tokens):
        home = folder / f"home-{host}"
        home.mkdir(exist_ok=True)
        words = inside(f"lab{host}", programs / "strait", "join", token)
        started.append(subprocess.Popen(words, cwd=folder, env={**os.environ, "HOME": str(home)},
                                        stderr=subprocess.DEVNULL))
    assert started[0].wait() == 0, "the run has failed"
    for one in started[1:]:
        one.wait()
    return step_seconds(folder, "apart")


class Lab:
    """Namespaces lab0 and lab1 with a shaped link between them, lab2 with wide ones to both."""

    def __init__(self, program, folder, rate, delay):
        lines = ["hosts 3", "prefix lab"]
        lines += [f"link {a} {b} rate {rate}mbit delay {delay}ms" for a, b in ((0, 1), (1, 0))]
        (folder / "lab.net").write_text("\n".join(lines) + "\n")
        words = [program, "up", "lab.net"]
        self.process = subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, text=True)
        line = self.process.stderr.readline()
        if "hosts up" not in line:
            print(f"skipped: {line.strip()}")
            sys.exit(77)

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate()


def main():
    options = machinery.options_of(__doc__, netlab=None, rounds=3, steps=12, rate=100.0, delay=20.0)
    if options.quick:
        options.rounds, options.steps = 1, WARM + 2
    size = SMALL if options.quick else BIG
    with tempfile.TemporaryDirectory() as name:
        measure(options, pathlib.Path(name), size)


def measure(options, folder, size):
    programs = options.bin
    make_bench(folder, size)
    simulate = {"hosts.simulate.rate": f"{options.rate}Mbit/s", "hosts.simulate.delay": f"{options.delay}ms"}
    join = {
        "hosts.backend": "join",
        "hosts.address": LAUNCHER,
        "hosts.list": [{"name": f"lab{i}", "address": a} for i, a in enumerate(HOSTS)],
    }
    for name, hosts in (("plain", {}), ("simulated", simulate), ("apart", join)):
        write_recipe(folder, name, size, options.steps, hosts)
    plan = subprocess.run([programs / "strait", "plan", "simulated.toml", "--json"], cwd=folder, check=True,
                          capture_output=True)
    print(f"{options.rate:g} Mbit/s, {options.delay:g} ms one way, load {os.getloadavg()[0]:.1f}")
    print(f"forecast of the simulated run: {json.loads(plan.stdout)['step_seconds']:.3f} s a step")
    lab = Lab(pathlib.Path(options.netlab).resolve(), folder, options.rate, options.delay) if options.netlab else None
    taken = {"plain": [], "simulated": [], "apart": []}
    try:
        for _ in range(options.rounds):
            taken["plain"].append(run_local(programs, folder, "plain"))
            taken["simulated"].append(run_local(programs, folder, "simulated"))
            if lab:
                taken["apart"].append(run_apart(programs, folder))
    finally:
        if lab:
            lab.close()
    for name, seconds in taken.items():
        if seconds:
            each = ", ".join(f"{one:.3f}" for one in seconds)
            print(f"{name}: {statistics.median(seconds):.3f} s a step ({each})")
    if lab:
        ratio = statistics.median(taken["simulated"]) / statistics.median(taken["apart"])
        print(f"simulated / namespaces: {ratio:.3f}")


if __name__ == "__main__":
    main()
