"""Many stage processes of a next to empty model on one machine: they come up, run and stop.

usage: many_processes.py [--bin FOLDER] [--layout 64x1 64x4] [--quick]
Prints a row per layout (stages x replicas): seconds from the command to the last hello, to training, to
the end; seconds a step; MiB of memory a process.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

import machinery

STEPS = 2


def write_inputs(folder, stages, replicas):
    config = {
        "model_type": "gpt2", "vocab_size": 257, "n_positions": 16, "n_embd": 8, "n_layer": stages, "n_head": 1,
        "tie_word_embeddings": True,
    }
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(config))
    (folder / "text.txt").write_text("one stage after the other\n" * 400)
    settings = {
        "data.row": 16, "pipeline.stages": stages, "pipeline.replicas": replicas, "train.steps": STEPS,
        "train.batch": 2 * replicas, "train.micro_batch": 1, "checkpoint.every": 0,
    }
    machinery.write_recipe(folder, "many", settings)


def proportional_memory(pid):
    """Bytes of a process, with what it shares divided among those who share it."""
    try:
        text = pathlib.Path("/proc", str(pid), "smaps_rollup").read_text()
    except OSError:
        return 0  # it has just ended
    return sum(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("Pss:"))


def measure(program, stages, replicas):
    with tempfile.TemporaryDirectory(prefix="strait-bench-") as name:
        folder = pathlib.Path(name)
        write_inputs(folder, stages, replicas)
        begun, at, pids, memory, steps = time.monotonic(), {}, [], 0, []
        command = [program, "run", "many.toml", "--json"]
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                event = json.loads(line)
                at[event["event"]] = time.monotonic() - begun
                if event["event"] == "connected":
                    pids.append(event["pid"])
                if event["event"] == "training":
                    memory = sum(map(proportional_memory, pids))
                if event["event"] == "step":
                    steps.append(event["seconds"])
        if process.returncode != 0:
            raise SystemExit(f"{stages} x {replicas} ended with {process.returncode}: {line}")
    return at["connected"], at["training"], time.monotonic() - begun, min(steps), memory, len(pids)


def main():
    options = machinery.options_of(__doc__, layout=["64x1", "64x4"])
    print("processes  hello s  training s  end s  step s  MiB a process")
    for layout in ["3x2"] if options.quick else options.layout:
        stages, replicas = map(int, layout.split("x"))
        hello, training, end, step, memory, count = measure(options.bin / "strait", stages, replicas)
        if count != stages * replicas:
            sys.exit(f"{count} processes said hello, not {stages * replicas}")
        print(f"{count:9}  {hello:7.1f}  {training:10.1f}  {end:5.1f}  {step:6.2f}  "
              f"{memory / count / (1 << 20):13.1f}")


if __name__ == "__main__":
    main()
