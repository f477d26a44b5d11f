"""How busy the stages are while `strait generate` answers many prompts over two hosts. See README.md.

usage: busy_stages.py [--bin FOLDER] [--megabits 100] [--prompts 256] [--batch 64] [--tokens 32] [--quick]

Two namespace hosts with a core and a line of their own each; the model is half the blocks of GPT-2 with 124 M
parameters, random weights, in two stages. A stage is busy while its main thread computes or waits for a core that others have; the
share of it that computes is printed, too. From the first answer to the last but a batch, so that neither start nor end
counts. Needs root.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import machinery

sys.path[:0] = [str(machinery.ROOT / "tests/hosts"), str(machinery.ROOT / "tests/processes")]

import control_group
import hosts

PROMPT = "The quick"
MODEL = {"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 6, "n_head": 12}
SMALL = {**MODEL, "n_layer": 2, "n_embd": 64, "n_head": 2, "vocab_size": 512}


def strait(options, folder, *words):
    command = [options.bin / "strait", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{words} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")


def seconds_of(group):
    """The main threads of a group's processes: (computing, waiting for a core)."""
    computing = waiting = 0
    for pid in (group.folders[0] / "cgroup.procs").read_text().split():
        with contextlib.suppress(OSError):  # it has ended since
            ran, waited, _ = map(int, pathlib.Path(f"/proc/{pid}/schedstat").read_text().split())
            computing, waiting = computing + ran / 1e9, waiting + waited / 1e9
    return computing, waiting


def train_over_hosts(options, folder, site):
    (folder / "model").mkdir()
    (folder / "model/config.json").write_text(json.dumps(SMALL if options.quick else MODEL))
    (folder / "text.txt").write_text(PROMPT * 200)
    machinery.write_recipe(folder, "asked", {
        "data.row": 128, "pipeline.stages": 2, "train.steps": 1, "train.epochs": None, "train.batch": 2,
        "train.micro_batch": 1, "hosts.backend": "ssh", "hosts.ssh_config": str(site.ssh.config),
        "hosts.list": site.names()})
    strait(options, folder, "run", "asked.toml")


def measure(options, folder, groups):
    (folder / "prompts.jsonl").write_text(f"{json.dumps({'prompt': PROMPT})}\n" * options.prompts)
    command = [options.bin / "strait", "generate", "runs/asked", "--prompts", "prompts.jsonl", "--on", "hosts",
               "--temperature", "1", "--max-tokens", str(options.tokens), "--batch", str(options.batch)]
    seen = []  # answers, when, seconds_of() each host
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        for number, _ in enumerate(process.stdout, 1):
            seen.append((number, time.monotonic(), list(map(seconds_of, groups))))
    if process.returncode != 0:
        raise SystemExit(f"generate ended with {process.returncode}")
    (first, begin, before), (last, end, after) = seen[0], seen[-options.batch - 1]
    seconds = end - begin
    print(f"{(last - first) * options.tokens / seconds:.1f} tokens a second, {seconds:.1f} s")
    for stage, (one, other) in enumerate(zip(before, after)):
        computing, waiting = (b - a for a, b in zip(one, other))
        print(f"stage {stage} busy {(computing + waiting) / seconds:.0%}, computing {computing / seconds:.0%}")


def main():
    options = machinery.options_of(__doc__, megabits=100, prompts=256, batch=64, tokens=32)
    if not control_group.usable():
        print("skipped: needs root, and cgroups that it may write")
        sys.exit(77)
    hosts.require_namespaces()
    if options.quick:
        options.prompts, options.batch, options.tokens = 12, 4, 3
    print(f"load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as until:
        folder = pathlib.Path(place)
        site = hosts.Site(folder / "site", 2)
        until.callback(site.close)
        groups = []
        for host in site.hosts:
            hosts.install_links(host)
            host.shape(up_megabits=options.megabits, down_megabits=options.megabits)
            groups.append(control_group.ControlGroup(host.name, cores=1))
            until.callback(groups[-1].close)
            groups[-1].add(host.sshd_pid())
        train_over_hosts(options, folder, site)
        measure(options, folder, groups)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
