"""Adapters over bases of few bits: memory of the stages against the plan, and what dequantising costs
a step; then what the same plan says of a model of seven billion parameters. See README.md.

usage: quantized_base.py [--bin FOLDER] [--blocks 6] [--steps 3] [--rounds 2] [--quick]

The layers are Qwen2-0.5B's, few of them, with random weights, over one stage and over two.
"""

import json
import os
import pathlib
import statistics
import subprocess

import machinery

FORMATS = ("none", "int8", "int4", "nf4")
TICKS = os.sysconf("SC_CLK_TCK")
GIB = 1 << 30
SMALL_MACHINE = 6e9  # bytes, of the machine that has to hold seven billion parameters
QWEN2 = {
    "model_type": "qwen2", "vocab_size": 32000, "hidden_size": 896, "intermediate_size": 4864,
    "num_attention_heads": 14, "num_key_value_heads": 2, "max_position_embeddings": 2048, "tie_word_embeddings": True,
}
TINY = QWEN2 | {"vocab_size": 257, "hidden_size": 28, "intermediate_size": 32}
MISTRAL = {
    "model_type": "mistral", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 32768,
    "sliding_window": 4096,
}
LLAMA = MISTRAL | {"model_type": "llama", "intermediate_size": 11008, "num_key_value_heads": 32}


class TimedRun(machinery.Run):
    """Counts the processor time of its stages, too, which other programs disturb little."""

    def __init__(self, *words):
        self.ticks = {}
        super().__init__(*words)

    def look_at_memory(self):
        super().look_at_memory()
        for hello in self.events("connected"):
            try:
                fields = pathlib.Path(f"/proc/{hello['pid']}/stat").read_text().rpartition(")")[2]
            except OSError:
                continue  # it has left already
            used = sum(map(int, fields.split()[11:13]))
            self.ticks.setdefault(hello["process"], []).append(used / TICKS)

    def step_seconds(self):
        """Processor time of a step, all stages together; the first steps still find memory."""
        return sum((ticks[-1] - ticks[0]) / (len(ticks) - 1) for ticks in self.ticks.values())


class Bench:
    def __init__(self, folder, program, options):
        self.folder, self.program, self.options = folder, program, options
        blocks = 2 if options.quick else options.blocks
        sizes = QWEN2 | {"vocab_size": 512, "hidden_size": 112} if options.quick else QWEN2
        self.models = {
            "qwen2": sizes | {"num_hidden_layers": blocks}, "tiny": TINY | {"num_hidden_layers": 2}, "llama-7b": LLAMA,
            "mistral-7b": MISTRAL,
        }
        for name, config in self.models.items():
            (folder / name).mkdir()
            (folder / name / "config.json").write_text(json.dumps(config))
        machinery.write_text(folder, 256, 64)

    def recipe(self, model, quantization, stages, row=256, micro_batch=2, dtype="float32"):
        settings = {
            "model.path": model, "model.dtype": dtype, "model.quantization": quantization, "model.lora.rank": 16,
            "model.lora.alpha": 32, "data.row": row, "pipeline.stages": stages, "train.steps": self.options.steps + 1,
            "train.batch": 4, "train.micro_batch": micro_batch, "train.learning_rate": 1e-4, "checkpoint.every": 0,
        }
        machinery.write_recipe(self.folder, "bench", settings)
        return "bench.toml"

    def plan(self, *choice, **more):
        command = [self.program, "plan", self.recipe(*choice, **more), "--json"]
        return json.loads(subprocess.check_output(command, cwd=self.folder))["processes"]

    def run(self, *choice):
        return TimedRun(self.program, self.folder, self.recipe(*choice))


def planned_bytes(process):
    return process["state_bytes"] + process["activation_bytes"]


def empty_process(bench):
    """What a stage of a next to empty model takes."""
    peaks = [one["VmHWM"] for one in bench.run("tiny", "none", 1).memory.values()]
    return max(peaks)


def show_memory(bench, empty):
    print(f"\na stage of next to nothing: {empty / machinery.MIB:.0f} MiB, which is taken off below")
    print("MiB of a stage: measured (VmHWM), planned state, planned activations; measured / planned")
    times = {}
    for stages in (1, 2):
        for quantization in FORMATS:
            planned = {one["name"]: one for one in bench.plan("qwen2", quantization, stages)}
            run = bench.run("qwen2", quantization, stages)
            if stages == 1:
                times[quantization] = [run.step_seconds()]
            for name, memory in sorted(run.memory.items()):
                measured, one = memory["VmHWM"] - empty, planned[name]
                print(f"{stages} stages, {quantization:5} {name}: {measured / machinery.MIB:6.0f}, "
                      f"{one['state_bytes'] / machinery.MIB:6.0f}, "
                      f"{one['activation_bytes'] / machinery.MIB:6.0f}; "
                      f"{measured / planned_bytes(one):.3f}")
    return times


def show_speed(bench, times):
    for _ in range(bench.options.rounds - 1):
        for quantization in FORMATS:
            times[quantization].append(bench.run("qwen2", quantization, 1).step_seconds())
    print("\nprocessor seconds of a step of four rows of 256 tokens, micro-batches of two, one stage")
    for quantization in FORMATS:
        pairs = zip(times[quantization], times["none"])
        ratio = statistics.median(mine / plain for mine, plain in pairs)
        seconds = statistics.median(times[quantization])
        print(f"{quantization:5} {seconds:8.2f}, {ratio:.3f} of a float32 base")


def show_seven_billion(bench, empty):
    print("\nplanned for a model of seven billion parameters on one machine, GiB with such a process")
    for model in ("llama-7b", "mistral-7b"):
        for dtype in ("float32", "bfloat16"):
            for quantization in FORMATS:
                choice = {"row": 128, "micro_batch": 1, "dtype": dtype}
                (process,) = bench.plan(model, quantization, 1, **choice)
                needed = planned_bytes(process) + empty
                words = "fits" if needed <= SMALL_MACHINE else "is too large"
                print(f"{model}, {dtype}, {quantization:5}: state {process['state_bytes'] / GIB:6.2f}, "
                      f"activations {process['activation_bytes'] / GIB:5.2f}, "
                      f"together {needed / GIB:6.2f}: {words} for {SMALL_MACHINE / 1e9:.0f} GB")


def main():
    options = machinery.options_of(__doc__, blocks=6, steps=3, rounds=2)
    if options.quick:
        options.steps, options.rounds = 2, 1
    with machinery.scratch() as folder:
        program = options.bin / "strait"
        bench = Bench(folder, program, options)
        empty = empty_process(bench)
        times = show_memory(bench, empty)
        show_speed(bench, times)
        show_seven_billion(bench, empty)


if __name__ == "__main__":
    main()
