"""What training on a GPU has to show, part by part; all.sh runs each of them:

usage: trained.py PART [--bin FOLDER] [--device cuda|cpu] [--small]

    speed     a Llama of 1.1 G parameters in bfloat16, in one and in two stages, and the same model in
              PyTorch, eager and compiled: seconds of a step, and the memory that tensors take
    waits     how often the compute thread waits for the GPU in a step (one is promised)
    links     two and four stages at 500 and 100 Mbit/s, delta 4 bits forward and 8 backward, beside raw
    variants  LoRA, and LoRA on a base of 4 bits
    resume    killed and resumed: the bits of a run that was not; twice the same bits
    losses    the losses of a CPU, within 2 % over 30 steps

Ends with 1 where a promise is broken. Needs this build, and for `speed` torch; no network, nothing else.
--small takes a model of toy size, with --device cpu anywhere: so the script is tested.
"""

import argparse
import array
import json
import pathlib
import random
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
WARM = 2  # steps before times count
LARGE = {"hidden": 2048, "inner": 5632, "blocks": 22, "heads": 32, "key_heads": 4, "vocabulary": 32000,
         "row": 1024, "batch": 16, "micro_batch": 2}  # fmt: skip
SMALL = {"hidden": 64, "inner": 96, "blocks": 4, "heads": 4, "key_heads": 2, "vocabulary": 300,
         "row": 64, "batch": 8, "micro_batch": 2}  # fmt: skip
TIMEOUT = 540


def llama_config(size):
    return {
        "model_type": "llama",
        "vocab_size": size["vocabulary"],
        "hidden_size": size["hidden"],
        "intermediate_size": size["inner"],
        "num_hidden_layers": size["blocks"],
        "num_attention_heads": size["heads"],
        "num_key_value_heads": size["key_heads"],
        "max_position_embeddings": size["row"],
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
    }


def write_rows(path, size, rows=64):
    """A token file of two documents a row, whose tokens follow each other by a rule that can be learnt."""
    chance = random.Random(1)
    tokens, documents = array.array("i"), array.array("i")
    for _ in range(rows):
        cut = chance.randrange(size["row"] // 4, size["row"] * 3 // 4)
        token = chance.randrange(size["vocabulary"])
        for i in range(size["row"]):
            tokens.append(token)
            documents.append(int(i >= cut))
            token = (token * 5 + 17) % min(size["vocabulary"], 257)
    shape, count = [rows, size["row"]], 4 * rows * size["row"]
    header = {
        name: {"dtype": "I32", "shape": shape, "data_offsets": [i * count, (i + 1) * count]}
        for i, name in enumerate(("input_ids", "document"))
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + tokens.tobytes() + documents.tobytes())
    return tokens


class Bench:
    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        self.size = SMALL if options.small else LARGE
        (folder / "model").mkdir()
        (folder / "model/config.json").write_text(json.dumps(llama_config(self.size)))
        self.tokens = write_rows(folder / "rows.safetensors", self.size)

    def settings(self, **changes):
        size = self.size
        all_of = {
            "seed": 3,
            "model.path": "model",
            "model.weights": "random",
            "model.dtype": "bfloat16" if self.options.device == "cuda" else "float32",
            "model.device": self.options.device,
            "data.train": "rows.safetensors",
            "data.row": size["row"],
            "pipeline.stages": 1,
            "train.steps": 6,
            "train.batch": size["batch"],
            "train.micro_batch": size["micro_batch"],
            "train.learning_rate": 1e-3 if self.options.small else 3e-4,
            "codec.forward": "raw",
            "codec.backward": "raw",
            "codec.wire_dtype": "bfloat16",
            "checkpoint.every": 0,
        }
        return all_of | {key.replace("__", "."): value for key, value in changes.items()}

    def write(self, name, **changes):
        lines = [f"{key} = {json.dumps(value)}\n" for key, value in self.settings(**changes).items()]
        (self.folder / f"{name}.toml").write_text("".join(lines))
        return [str(self.options.bin / "strait"), "run", f"{name}.toml", "--replace", "--json"]

    def finish(self, command, env=None):
        done = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, timeout=TIMEOUT, env=env
        )
        if done.returncode != 0:
            sys.exit(f"{command} ended with {done.returncode}: {done.stdout[-1500:]}{done.stderr}")
        return done

    def run(self, name, **changes):
        self.finish(self.write(name, **changes))
        return self.metrics(name)

    def metrics(self, name):
        text = (self.folder / "runs" / name / "metrics.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def weights(self, name):
        """Bytes of all files of the newest checkpoint that hold tensors."""
        newest = max((self.folder / "runs" / name / "checkpoints").iterdir(), key=step_of)
        return {path.name: path.read_bytes() for path in sorted(newest.glob("*.safetensors"))}


def step_of(path):
    return int(path.name.rpartition("-")[2])


def seconds_of(metrics):
    return statistics.median(line["seconds"] for line in metrics[WARM:])


def losses_of(metrics):
    return [line["loss"] for line in metrics]


def show(what, value):
    print(f"  {what:<44} {value}")


def expect(holds, promise):
    show(promise, "holds" if holds else "BROKEN")
    return holds


# ---- parts


def memory_of(metrics):
    per_process = metrics[-1]["gpu_memory_bytes"]
    if not any(per_process.values()):
        per_process = metrics[-1]["memory_bytes"]
    return " + ".join(f"{value / 1e9:.2f}" for value in per_process.values()) + " GB"


def speed(bench):
    ours = {}
    for stages in (1, 2):
        metrics = bench.run(f"stages{stages}", pipeline__stages=stages)
        ours[stages] = seconds_of(metrics)
        show(f"strait, stages: {stages}", f"{ours[stages]:8.3f} s a step, {memory_of(metrics)}")
    try:
        import torch_llama
    except ImportError as error:
        show("PyTorch", f"not compared: {error}")
        return True
    for compiled in (False,) if bench.options.small else (False, True):
        seconds, memory = torch_llama.measure(bench.size, bench.tokens, bench.options.device, compiled, WARM)
        show(
            f"PyTorch, {'compiled' if compiled else 'eager'}",
            f"{seconds:8.3f} s a step, {memory / 1e9:.2f} GB; {seconds / ours[1]:.2f} times strait's",
        )
    return True


def waits(bench):
    """Of calls of the CUDA runtime that wait, by a library that counts them."""
    counter = bench.folder / "count_waits.so"
    source = pathlib.Path(__file__).with_name("count_waits.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", counter, source, "-ldl"], check=True)
    counted = []
    for steps in (4, 12):
        command = bench.write("waits", train__steps=steps)
        out = bench.folder / f"waits{steps}"
        bench.finish(["env", f"LD_PRELOAD={counter}", f"STRAIT_WAITS_OUT={out}", *command])
        lines = [path.read_text() for path in bench.folder.glob(f"{out.name}.*")]
        counted.append(sum(int(line) for line in lines))
    a_step = (counted[1] - counted[0]) / 8
    show("waits of the compute thread in a step", f"{a_step:.2f}")
    return expect(a_step <= 1, "at most one wait in a step")


def links(bench):
    held = True
    small = bench.options.small
    for stages in (2,) if small else (2, 4):
        free = seconds_of(bench.run("free", pipeline__stages=stages))
        show(f"{stages} stages, raw, unshaped", f"{free:8.3f} s a step")
        for rate in (100,) if small else (500, 100):
            shaped = {"pipeline__stages": stages, "hosts__simulate__rate": f"{rate}Mbit/s",
                      "hosts__simulate__delay": "5ms"}  # fmt: skip
            raw = seconds_of(bench.run("raw", **shaped))
            few = seconds_of(
                bench.run(
                    "few", **shaped, codec__forward="delta", codec__forward_bits=4,
                    codec__backward="fixed", codec__backward_bits=8, train__steps=8
                )  # fmt: skip
            )
            show(f"{stages} stages at {rate} Mbit/s", f"{few:8.3f} s a step; raw {raw:.3f} s")
            held &= small or few < raw  # a toy's frames are too small to tell
    return expect(held, "fewer bits are quicker than raw on every link")


def variants(bench):
    held = True
    lora = {"rank": 8, "alpha": 16, "targets": ["q_proj", "v_proj"]}
    plain = None
    for name, changes in (("LoRA", {}), ("LoRA, base nf4", {"model__quantization": "nf4"})):
        inline = {f"model__lora__{key}": value for key, value in lora.items()}
        metrics = bench.run("lora", pipeline__stages=2, train__steps=12, **inline, **changes)
        losses = losses_of(metrics)
        show(name, f"loss {losses[0]:.4f} to {losses[-1]:.4f}, {seconds_of(metrics):.3f} s, {memory_of(metrics)}")
        plain = plain or losses
        held &= abs(losses[-1] - plain[-1]) < 0.05 * plain[-1]
    return expect(held, "a base of 4 bits learns as one of 16")


def resume(bench):
    long = {"pipeline__stages": 2, "train__steps": 12, "checkpoint__every": 4}
    bench.run("whole", **long)
    bench.run("again", **long)
    same = losses_of(bench.metrics("whole")) == losses_of(bench.metrics("again"))
    same &= bench.weights("whole") == bench.weights("again")
    held = expect(same, "two runs give the same bits")
    command = bench.write("killed", **long)
    launched = subprocess.Popen(
        command, cwd=bench.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    committed = bench.folder / "runs/killed/checkpoints/step-4/manifest.json"
    deadline = time.monotonic() + TIMEOUT
    while not committed.exists() and launched.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    launched.send_signal(signal.SIGKILL)
    launched.wait()
    bench.finish([command[0], "resume", "runs/killed"])
    return expect(bench.weights("killed") == bench.weights("whole"), "resumed gives the bits of a whole run") and held


def losses(bench):
    """In float32, of a model that a CPU can do: the toy, or four blocks of a quarter of the width."""
    if not bench.options.small:
        bench.size |= {"blocks": 4, "hidden": 512, "inner": 1408, "heads": 8, "key_heads": 2}
        (bench.folder / "model/config.json").write_text(json.dumps(llama_config(bench.size)))
    curves = {}
    for device in {bench.options.device, "cpu"}:
        curves[device] = losses_of(
            bench.run(
                f"on_{device}", model__device=device, model__dtype="float32", pipeline__stages=2,
                train__steps=30, train__batch=4, train__micro_batch=2
            )  # fmt: skip
        )
    first = curves[bench.options.device]
    furthest = max(abs(a - b) / b for a, b in zip(first, curves["cpu"], strict=True))
    show("loss", f"{first[0]:.4f} to {first[-1]:.4f}")
    show("furthest from the CPU's", f"{100 * furthest:.3f} %")
    return expect(furthest < 0.02 and first[-1] < first[0], "the losses of a CPU, within 2 %")


PARTS = {"speed": speed, "waits": waits, "links": links, "variants": variants, "resume": resume,
         "losses": losses}  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=PARTS, nargs="+")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/gpu/bin")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    options.bin = options.bin.resolve()
    held = True
    for part in options.part:
        print(f"{part}:")
        with tempfile.TemporaryDirectory(prefix="strait-gpu-") as folder:
            held &= PARTS[part](Bench(options, pathlib.Path(folder)))
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
