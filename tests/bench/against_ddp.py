"""Replicas on two hosts behind a narrow cable: strait against PyTorch's DistributedDataParallel, the same
model and rows per step, one thread per host. See README.md.

usage: against_ddp.py [--bin FOLDER] [--rounds 1] [--steps 12] [--megabits 0 100 20] [--quick]

Hosts as tests/hosts makes them: network namespaces, real sshd for ours. Exit code 77, with the reason,
where they cannot be had.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/hosts"))

PORT = 29500  # in a namespace of its own
HOSTS = 2
WARM = 3  # steps before times count
SEED = 1
MODEL = {
    "model_type": "gpt2", "vocab_size": 8192, "n_positions": 128, "n_embd": 384, "n_layer": 6, "n_head": 6,
    "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0, "tie_word_embeddings": True,
}
SMALL = {"n_embd": 64, "n_layer": 2, "n_head": 2, "vocab_size": 512}
ROWS = 4  # a step, per host
MICRO_BATCH = 2
OURS = {
    "allreduce": {"sync.method": "allreduce", "sync.wire_dtype": "float32"},
    "allreduce bfloat16": {"sync.method": "allreduce", "sync.wire_dtype": "bfloat16"},
    "powersgd rank 2": {"sync.method": "powersgd", "sync.rank": 2}, "cocktail": {"sync.method": "cocktail"},
}
THEIRS = {"DDP": "plain", "DDP fp16 hook": "fp16", "DDP PowerSGD rank 2": "powersgd2"}


def write_inputs(folder, small):
    import numpy
    import safetensors.numpy

    model = {**MODEL, **(SMALL if small else {})}
    (folder / "model").mkdir()
    (folder / "model/config.json").write_text(json.dumps(model))
    rows = numpy.random.default_rng(SEED).integers(
        model["vocab_size"], size=(400, model["n_positions"]), dtype=numpy.int32
    )
    safetensors.numpy.save_file({"input_ids": rows}, folder / "tokens.safetensors")
    return model


def seconds_of_ddp(site, folder, hook, steps, row):
    model = (folder / "model/config.json").read_text()  # hosts have a /tmp of their own
    workers = []
    for rank, host in enumerate(site.hosts):
        words = [sys.executable, ROOT / "tests/bench/ddp_worker.py", model, rank]
        words += [HOSTS, f"{site.hosts[0].address}:{PORT}", hook, steps, ROWS, MICRO_BATCH, row]
        command = host.command("env", "GLOO_SOCKET_IFNAME=eth0", "OMP_NUM_THREADS=1", *words)
        workers.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    said = [worker.communicate()[0] for worker in workers]
    if any(worker.returncode for worker in workers):
        raise SystemExit(f"DistributedDataParallel with {hook} ended badly: {said}")
    return statistics.median(float(line) for line in said[0].split()[WARM:])


def seconds_of_ours(site, folder, program, settings, steps, row):
    import runs

    settings = {
        "name": "ours", "seed": SEED, "model.path": "model", "model.weights": "random",
        "data.train": "tokens.safetensors", "data.row": row, "pipeline.stages": 1, "pipeline.replicas": HOSTS,
        "pipeline.threads": 1, "train.steps": steps, "train.batch": ROWS * HOSTS, "train.micro_batch": MICRO_BATCH,
        "train.learning_rate": 1e-4, "hosts.backend": "ssh", "hosts.ssh_config": str(site.ssh.config),
        "hosts.list": site.names(), **settings,
    }
    recipe = folder / "ours.toml"
    recipe.write_text(runs.recipe_text(settings))
    command = [program, "run", recipe, "--json", "--replace"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{command} ended with {done.returncode}: {done.stdout[-800:]}{done.stderr}")
    lines = (folder / "runs/ours/metrics.jsonl").read_text().splitlines()
    counted = [json.loads(line) for line in lines][WARM:]
    sent = statistics.mean(step["bytes_sync"] for step in counted) / HOSTS
    return statistics.median(step["seconds"] for step in counted), sent


def print_table(widths, taken, sent):
    names = ["unshaped" if width == 0 else f"{width:g} Mbit/s" for width in widths]
    print(f"{'seconds a step':22}" + "".join(f"{name:>14}" for name in names) + "   MB sent a step")
    for way in [*THEIRS, *OURS]:
        cells = [f"{statistics.median(taken[way, width]):14.3f}" for width in widths]
        mega = f"{sent[way] / 1e6:17.3f}" if way in sent else ""
        print(f"{way:22}" + "".join(cells) + mega)


def compare(site, folder, options):
    row = write_inputs(folder, options.quick)["n_positions"]
    rounds, steps = (1, 6) if options.quick else (options.rounds, options.steps)
    widths = options.megabits[:1] if options.quick else options.megabits
    program = pathlib.Path(options.bin).resolve() / "strait"
    taken, sent = {}, {}
    for _ in range(rounds):
        for width in widths:
            for host in site.hosts:
                host.shape(width, width)
            for way, hook in THEIRS.items():
                seconds = seconds_of_ddp(site, folder, hook, steps, row)
                taken.setdefault((way, width), []).append(seconds)
            for way, words in OURS.items():
                seconds, sent[way] = seconds_of_ours(site, folder, program, words, steps, row)
                taken.setdefault((way, width), []).append(seconds)
    print_table(widths, taken, sent)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", default=os.environ.get("STRAIT_BIN", ROOT / "build/release/bin"))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--megabits", type=float, nargs="+", default=[0, 100, 20])
    parser.add_argument("--quick", action="store_true", help="tiny: shows only that it works")
    options = parser.parse_args()
    os.environ["STRAIT_BIN"] = str(options.bin)
    os.environ.setdefault("STRAIT_BUILD", str(pathlib.Path(options.bin).resolve().parent))
    import debs
    import hosts
    import namespace_host

    _, reason = debs.unpacked("openssh-server")
    if not reason and hosts.INSIDE not in os.environ:
        hosts.enter_namespace()
    if reason or not hosts.has_namespaces():
        print(f"skipped: {reason or 'needs network namespaces'}")
        return 77
    namespace_host.make_bridge()
    print(f"seed {SEED}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        site = hosts.Site(folder / "site", HOSTS)
        try:
            for host in site.hosts:
                hosts.install_links(host)
            compare(site, folder, options)
        finally:
            site.close()
    print(f"load {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
