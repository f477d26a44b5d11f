"""Memory of stage processes against the plan, over what a recipe can choose. See README.md.

usage: memory_plan.py [--bin FOLDER] [--models small middle] [--cases WORD ...] [--quick]

Each case is a short run. Its last lines say the most that each process took, and what was planned.
"""

import json
import os
import pathlib
import re
import subprocess
import tempfile

import machinery
import quantized_base

MODELS = {
    "small": machinery.MODEL | {"n_embd": 128, "n_head": 4, "n_layer": 4},
    "middle": quantized_base.QWEN2
    | {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8}
    | {"num_attention_heads": 8},
}
ROWS = {"small": 128, "middle": 256}  # tokens of a row

STAGES = {"pipeline.stages": 2}
REPLICAS = {"pipeline.stages": 1, "pipeline.replicas": 2}
LORA = {"model.lora.rank": 16, "model.lora.alpha": 32}
PLAIN = {"codec.forward": "raw", "codec.backward": "raw"}
CASES = {
    "one stage": {"pipeline.stages": 1},
    "two threads": {"pipeline.stages": 1, "pipeline.threads": 2},
    "two stages": STAGES | PLAIN,
    "gpipe": STAGES | PLAIN | {"pipeline.schedule": "gpipe"},
    "depth 2": STAGES | PLAIN | {"pipeline.depth": 2},
    "interleaved": STAGES | PLAIN | {"pipeline.schedule": "interleaved"},
    "zero bubble": STAGES | PLAIN | {"pipeline.schedule": "zero_bubble"},
    "recompute": STAGES | PLAIN | {"model.recompute": "layer"},
    "bfloat16": STAGES | PLAIN | {"model.dtype": "bfloat16"},
    "fixed": STAGES | {"codec.forward": "fixed", "codec.backward": "fixed"},
    "delta, two epochs": STAGES
    | {"codec.forward": "delta", "codec.backward": "fixed", "train.epochs": 2, "train.steps": None},
    "evaluation": STAGES | PLAIN | {"data.eval": "text.txt", "train.eval_every": 2},
    "checkpoints": STAGES | PLAIN | {"checkpoint.every": 2},
    "checkpoints in memory": STAGES | PLAIN | {"checkpoint.memory_every": 2},
    "lora": STAGES | PLAIN | LORA,
    "lora, one stage": {"pipeline.stages": 1} | LORA,
    "lora on int8": {"pipeline.stages": 1, "model.quantization": "int8"} | LORA,
    "lora on int4": {"pipeline.stages": 1, "model.quantization": "int4"} | LORA,
    "lora on int4, two stages": STAGES | PLAIN | {"model.quantization": "int4"} | LORA,
    "lora on nf4": {"pipeline.stages": 1, "model.quantization": "nf4"} | LORA,
    "lora on nf4, bfloat16": {"pipeline.stages": 1, "model.quantization": "nf4", "model.dtype": "bfloat16"} | LORA,
} | {
    method: REPLICAS | {"sync.method": method, "sync.group": "auto"} | more
    for method, more in {
        "allreduce": {}, "bytegrad": {}, "powersgd": {}, "cocktail": {}, "diloco": {"sync.every": 2},
        "streaming_diloco": {"sync.every": 4}, "noloco": {"sync.every": 2}, "onebit_adam": {},
    }.items()
} | {
    "allreduce, shared memory": REPLICAS | {"sync.method": "allreduce", "sync.group": "always"},
    "allreduce, shared state": REPLICAS
    | {"sync.method": "allreduce", "sync.group": "always", "sync.share_state": True},
    "powersgd, continue": REPLICAS | {"sync.method": "powersgd", "sync.on_loss": "continue"},
}
QUICK = ("one stage", "lora on int4", "powersgd")
SIZE = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}


def bytes_of(number, unit):
    return float(number) * SIZE[unit]


def memory_of(printed):
    """process -> (bytes taken, bytes planned), from the lines that a run ends with."""
    (line,) = re.findall(r"^memory +(.*)$", printed, re.MULTILINE)
    size = r"([\d.]+) (B|[kMG]B)"
    found = re.findall(rf"(\d+\.\d+) {size} of {size} planned", line)
    return {process: (bytes_of(*words[:2]), bytes_of(*words[2:])) for process, *words in found}


def measure(program, folder, name, settings):
    machinery.write_recipe(folder, name, settings)
    command = [program, "run", f"{name}.toml", "--replace"]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{command} ended with {done.returncode}: {done.stdout}")
    return memory_of(done.stdout)


def show(program, folder, options, model):
    (folder / model).mkdir()
    (folder / model / "config.json").write_text(json.dumps(MODELS[model]))
    machinery.write_text(folder, ROWS[model], 24)
    print(f"\n{model} model: MB taken, planned, difference, taken / planned")
    for case, settings in CASES.items():
        if options.quick and case not in QUICK or not any(word in case for word in options.cases):
            continue
        base = {"model.path": model, "data.row": ROWS[model], "train.steps": options.steps}
        base |= {"train.batch": 8, "train.micro_batch": 2, "checkpoint.every": 0}
        memory = measure(program, folder, "bench", base | settings)
        for process, (taken, planned) in sorted(memory.items()):
            print(f"{case:25} {process} {taken / 1e6:8.1f} {planned / 1e6:8.1f} "
                  f"{(taken - planned) / 1e6:+8.1f}  {taken / planned:.2f}",
                  flush=True)


def main():
    options = machinery.options_of(__doc__, models=MODELS, cases=[""], steps=6)
    if options.quick:
        options.models, options.cases, options.steps = ["small"], list(QUICK), 2
    print(f"seed {machinery.SEED}, {os.cpu_count()} cores, load {' '.join(map(str, os.getloadavg()))}")
    program = options.bin / "strait"
    with tempfile.TemporaryDirectory() as name:
        for model in options.models:
            show(program, pathlib.Path(name), options, model)


if __name__ == "__main__":
    main()
