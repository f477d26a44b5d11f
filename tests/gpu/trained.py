"""What training on a GPU has to show, part by part; all.sh runs each of them:

usage: trained.py PART... [--bin FOLDER] [--device cuda|cpu] [--small] [--full] [--folder FOLDER]

    speed     a Llama of 1.1 G parameters in bfloat16, in one and in two stages, and the same model in
              PyTorch, eager and with --full compiled: seconds of a step, and the memory that tensors take
    waits     how often the compute thread waits for the GPU in a step (one is promised)
    links-2   two stages at 100 Mbit/s, with --full at 500 as well, delta 4 bits forward and 8 backward,
              beside raw
    links-4   the same with four stages
    memory    a run whose GPU another process fills ends with one sentence that says so
    variants  LoRA, and LoRA on a base of 4 bits
    resume    killed and resumed: the bits of a run that was not; twice the same bits
    losses    the losses of a CPU, within 2 % over 30 steps

Every run has to say in its logs that it can use what a GPU has: codecs, flash attention. Ends with 1 where a
promise is broken. Needs this build, and for `speed` torch; no network, nothing else. Runs are kept below
--folder, or that for temporary files, until they are read.
--small takes a model of toy size, with --device cpu anywhere: so the script is tested.
"""

import argparse
import array
import contextlib
import ctypes
import functools
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
WARM = 2  # steps before times count
SPEED_WARM, SPEED_STEPS = 6, 8  # of speed: the first steps took half as long again on a fresh machine
LARGE = {"hidden": 2048, "inner": 5632, "blocks": 22, "heads": 32, "key_heads": 4, "vocabulary": 32000,
         "row": 1024, "batch": 16, "micro_batch": 2}  # fmt: skip
# What of LARGE is smaller in a model that a CPU can train, too.
QUARTER = {"hidden": 512, "inner": 1408, "blocks": 4, "heads": 8, "key_heads": 2}
SMALL = {"hidden": 64, "inner": 96, "blocks": 4, "heads": 4, "key_heads": 2, "vocabulary": 300,
         "row": 64, "batch": 8, "micro_batch": 2}  # fmt: skip
OUT_OF_MEMORY = 50  # the exit code
TIMEOUT = 540  # of one run; all.sh gives most parts less


def llama_config(size):
    return {
        "model_type": "llama", "vocab_size": size["vocabulary"], "hidden_size": size["hidden"],
        "intermediate_size": size["inner"], "num_hidden_layers": size["blocks"], "num_attention_heads": size["heads"],
        "num_key_value_heads": size["key_heads"], "max_position_embeddings": size["row"], "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "tie_word_embeddings": False,
    }


def write_rows(path, size, rows=64, documents_of_row=2):
    """A token file of one or two documents a row. Its tokens follow each other by a rule that can be learnt."""
    chance = random.Random(1)
    tokens, documents = array.array("i"), array.array("i")
    for _ in range(rows):
        cut = chance.randrange(size["row"] // 4, size["row"] * 3 // 4)
        token = chance.randrange(size["vocabulary"])
        for i in range(size["row"]):
            tokens.append(token)
            documents.append(int(i >= cut and documents_of_row == 2))
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


PRCTL = ctypes.CDLL(None).prctl
PR_SET_PDEATHSIG = 1


def end_with_script():
    """In a process that begins. A launcher that is killed takes its stages with it: so nothing of a script
    that is killed stays on the GPU."""
    PRCTL(PR_SET_PDEATHSIG, signal.SIGKILL)


def missed_of_gpu(log, dtype):
    """What a stage that computes on a GPU did not use of it, by its log; "" is nothing."""
    if "boundaries are quantised there" not in log:
        return "boundaries are not quantised on the GPU"
    if dtype == "bfloat16" and "attention is computed by libtorch's flash attention" not in log:
        return "attention is not flash attention"
    if "deterministic" in log:
        return "libtorch warns of an algorithm that is not deterministic"
    return ""


def end(process):
    """Ends a strait that still runs. At a second SIGTERM it leaves at once and takes its stages with it,
    which are no members of its process group."""
    for number, seconds in ((signal.SIGTERM, 1), (signal.SIGTERM, 10), (signal.SIGKILL, None)):
        if process.poll() is None:
            os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)


class Bench:
    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        self.device_and_dtype = {}  # of each run
        self.size = dict(SMALL if options.small else LARGE)
        (folder / "model").mkdir()
        self.resize()
        self.tokens = write_rows(folder / "rows.safetensors", self.size)

    def resize(self, **changes):
        """Changes the model, but not the toy."""
        if not self.options.small:
            self.size |= changes
        (self.folder / "model/config.json").write_text(json.dumps(llama_config(self.size)))

    def settings(self, **changes):
        size = self.size
        all_of = {
            "seed": 3, "model.path": "model", "model.weights": "random",
            "model.dtype": "bfloat16" if self.options.device == "cuda" else "float32",
            "model.device": self.options.device, "data.train": "rows.safetensors", "data.row": size["row"],
            "pipeline.stages": 1, "pipeline.threads": 1 if self.options.small else "auto", "train.steps": 6,
            "train.batch": size["batch"], "train.micro_batch": size["micro_batch"],
            "train.learning_rate": 1e-3 if self.options.small else 3e-4, "codec.forward": "raw",
            "codec.backward": "raw", "codec.wire_dtype": "bfloat16", "checkpoint.every": 0,
        }
        return all_of | {key.replace("__", "."): value for key, value in changes.items()}

    def write(self, name, **changes):
        """The command of a run of that name."""
        settings = self.settings(**changes)
        self.device_and_dtype[name] = settings["model.device"], settings["model.dtype"]
        lines = [f"{key} = {json.dumps(value)}\n" for key, value in settings.items()]
        (self.folder / f"{name}.toml").write_text("".join(lines))
        return [self.options.bin / "strait", "run", f"{name}.toml", "--json"]

    @contextlib.contextmanager
    def launched(self, command, **environment):
        """A process that has ended behind the `with`. In a session of its own: signals of a terminal and of
        `timeout` come to this script only, which ends it then."""
        with open(self.folder / "output.txt", "wb") as out:
            process = subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                start_new_session=True, env=os.environ | environment, preexec_fn=end_with_script
            )  # fmt: skip
        try:
            yield process
        finally:
            end(process)

    def finish(self, command, **environment):
        with self.launched(command, **environment) as process:
            code = process.wait(TIMEOUT)
        if code != 0:
            self.fail(f"{' '.join(map(str, command))} ended with {code}")

    def fail(self, what):
        output = (self.folder / "output.txt").read_text(errors="replace")
        sys.exit(f"{what}: {output[-3000:]}")

    def run(self, name, **changes):
        """The metrics of a run."""
        self.finish(self.write(name, **changes))
        metrics = self.lines(name, "metrics.jsonl")
        self.delete(name)
        return metrics

    def lines(self, name, file):
        text = (self.folder / "runs" / name / file).read_text()
        return [json.loads(line) for line in text.splitlines()]

    def delete(self, name):
        """Always before the next run: every run saves at its end, which is 13 GB of the large model."""
        self.check_logs(name)
        shutil.rmtree(self.folder / "runs" / name)

    def check_logs(self, name):
        device, dtype = self.device_and_dtype[name]
        files = (self.folder / "runs" / name / "logs").glob("*.log")
        of_stages = [log for log in (path.read_text(errors="replace") for path in files) if "computes on " in log]
        if not of_stages:
            self.fail(f"no log of {name} names a device")
        for log in of_stages:
            if device == "cuda" and (missed := missed_of_gpu(log, dtype)):
                self.fail(f"{name}: {missed}; its log: {log[-2000:]}")

    def is_saved(self, name, step="*"):
        """That step, or any."""
        return any((self.folder / f"runs/{name}/checkpoints").glob(f"step-{step}/manifest.json"))

    def hashes(self, name, step):
        """Of the files of a checkpoint that hold tensors."""
        files = (self.folder / f"runs/{name}/checkpoints/step-{step}").glob("*.safetensors")
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def seconds_of(metrics, warm=WARM):
    return statistics.median(line["seconds"] for line in metrics[warm:])


def losses_of(metrics):
    return [line["loss"] for line in metrics]


def show(what, value):
    print(f"  {what:<44} {value}", flush=True)


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
    # PyTorch attends over whole rows.
    bench.tokens = write_rows(bench.folder / "rows.safetensors", bench.size, documents_of_row=1)
    ours = {}
    for stages in (1, 2):
        metrics = bench.run(f"stages{stages}", pipeline__stages=stages, train__steps=SPEED_WARM + SPEED_STEPS)
        ours[stages] = seconds_of(metrics, SPEED_WARM)
        show(f"strait, stages: {stages}", f"{ours[stages]:8.3f} s a step, {memory_of(metrics)}")
    try:
        import torch_llama
    except ImportError as error:
        show("PyTorch", f"not compared: {error}")
        return True
    for compiled in (False, True) if bench.options.full else (False,):
        seconds, memory = torch_llama.measure(
            bench.size, bench.tokens, bench.options.device, compiled, SPEED_WARM, SPEED_STEPS
        )
        show(f"PyTorch, {'compiled' if compiled else 'eager'}",
             f"{seconds:8.3f} s a step, {memory / 1e9:.2f} GB; {seconds / ours[1]:.2f} times strait's")
    return True


def waits_of_run(bench, counter, steps):
    """Of its stage processes, by their files: one that is missing is an error."""
    out = bench.folder / f"waits{steps}"
    command = bench.write("waits", train__steps=steps)
    bench.finish(command, LD_PRELOAD=str(counter), STRAIT_WAITS_OUT=str(out))
    pids = [event["pid"] for event in bench.lines("waits", "events.jsonl") if event["event"] == "connected"]
    bench.delete("waits")
    counted = [struct.unpack("@l", out.with_suffix(f".{pid}").read_bytes())[0] for pid in pids]
    return sum(counted) / len(counted)


def waits(bench):
    """Of calls of the CUDA runtime that wait, by a library that counts them. They do not depend on the
    model's size."""
    bench.resize(**QUARTER)
    source = pathlib.Path(__file__).with_name("count_waits.c")
    # Not in the folder of runs, from which a system may let nothing be loaded (/dev/shm).
    with tempfile.TemporaryDirectory(prefix="strait-gpu-") as folder:
        counter = pathlib.Path(folder) / "count_waits.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", counter, source, "-ldl"], check=True)
        few, many = (waits_of_run(bench, counter, steps) for steps in (4, 12))
    a_step = (many - few) / 8
    show("waits of the compute thread in a step", f"{a_step:.2f}")
    if bench.options.device == "cuda" and a_step == 0:  # a loss cannot be read without one
        return expect(False, "waits are counted")
    return expect(a_step <= 1, "at most one wait in a step")


def links(bench, stages):
    """Takes 400 s at most with --full, by estimate, and 200 s without. In a step, 67 MB cross each boundary each
    way, raw: with four stages 15 s at 100 Mbit/s where nothing overlaps, half of that in few bits, a fifth at
    500 Mbit/s: 180 s for the shaped steps. Five runs, each 15 s until it trains and 30 s to save 6 GB at 0.2 GB/s:
    225 s."""
    bench.resize(blocks=8)
    held = True
    small = bench.options.small
    free = seconds_of(bench.run("free", pipeline__stages=stages))
    show(f"{stages} stages, raw, unshaped", f"{free:8.3f} s a step")
    for rate in (500, 100) if bench.options.full else (100,):
        shaped = {"pipeline__stages": stages, "hosts__simulate__rate": f"{rate}Mbit/s",
                  "hosts__simulate__delay": "5ms"}  # fmt: skip
        raw = seconds_of(bench.run("raw", **shaped))
        few = seconds_of(
            bench.run("few", **shaped, codec__forward="delta", codec__forward_bits=4,
                      codec__backward="fixed", codec__backward_bits=8, train__steps=8)  # fmt: skip
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


# Steps enough that a fast GPU is not done before the run is killed.
LONG = {"pipeline__stages": 2, "train__steps": 40, "checkpoint__every": 4}


def bits_of(bench, name):
    """What a run of LONG that has ended came to."""
    bits = losses_of(bench.lines(name, "metrics.jsonl")), bench.hashes(name, LONG["train__steps"])
    bench.delete(name)
    return bits


def start_and_kill(bench, name):
    """Once its first checkpoint is complete."""
    deadline = time.monotonic() + TIMEOUT
    with bench.launched(bench.write(name, **LONG)) as process:
        while not bench.is_saved(name) and process.poll() is None:
            if time.monotonic() > deadline:
                bench.fail("no checkpoint came")
            time.sleep(0.02)
        process.kill()
        process.wait()
    if process.returncode != -signal.SIGKILL or bench.is_saved(name, LONG["train__steps"]):
        bench.fail(f"the run ended before it could be killed, with {process.returncode}")


def resume(bench):
    """Of rows that hold documents of 256 to 768 tokens, so attention has several blocks of keys."""
    bench.resize(**QUARTER)
    bits = []
    for name in ("whole", "again"):
        bench.finish(bench.write(name, **LONG))
        bits.append(bits_of(bench, name))
    held = expect(bits[0] == bits[1], "two runs give the same bits")
    start_and_kill(bench, "killed")
    bench.finish([bench.options.bin / "strait", "resume", "runs/killed"])
    return expect(bits_of(bench, "killed") == bits[0], "resumed gives the bits of a whole run") and held


def losses(bench):
    """In float32, of a model that a CPU can train."""
    bench.resize(**QUARTER)
    curves = {}
    for device in {bench.options.device, "cpu"}:
        curves[device] = losses_of(
            bench.run(f"on_{device}", model__device=device, model__dtype="float32", pipeline__stages=2,
                      train__steps=30, train__batch=4, train__micro_batch=2)  # fmt: skip
        )
    first = curves[bench.options.device]
    furthest = max(abs(a - b) / b for a, b in zip(first, curves["cpu"], strict=True))
    show("loss", f"{first[0]:.4f} to {first[-1]:.4f}")
    show("furthest from the CPU's", f"{100 * furthest:.3f} %")
    return expect(furthest < 0.02 and first[-1] < first[0], "the losses of a CPU, within 2 %")


# Takes all that is free of the GPU's memory, and keeps it until its stdin ends.
FILL = """
import sys, torch
free = torch.cuda.mem_get_info()[0] - int(sys.argv[1])
held = torch.empty(free, dtype=torch.uint8, device="cuda")
print(torch.cuda.mem_get_info()[0], flush=True)
sys.stdin.read()
"""


def memory(bench):
    """By the plan the GPU holds the model: that others are there shows when they have taken the memory."""
    if bench.options.device == "cpu":
        return True
    left = "8000000000"
    with subprocess.Popen(
        [sys.executable, "-c", FILL, left], stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=end_with_script
    ) as filling:  # fmt: skip
        show("free for a run that needs 23 GB", f"{int(filling.stdout.readline()) / 1e9:.1f} GB")
        with bench.launched(bench.write("filled")) as process:
            code = process.wait(TIMEOUT)
        filling.stdin.close()
    cause = json.loads((bench.folder / "runs/filled/status.json").read_text())["outcome"]["cause"]
    shutil.rmtree(bench.folder / "runs/filled")
    show("it ends with", f"{code}: {cause}")
    words = ("out of memory", "; of cuda:0: ", " free", "train.micro_batch", "model.recompute", "pipeline.stages")
    return expect(code == OUT_OF_MEMORY and all(word in cause for word in words), "a sentence with what to change")


PARTS = {"speed": speed, "memory": memory, "waits": waits, "links-2": functools.partial(links, stages=2),
         "links-4": functools.partial(links, stages=4), "variants": variants, "resume": resume,
         "losses": losses}  # fmt: skip


def leave(number, _):
    """`timeout` sends its signal twice: to this process, and to its group."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=PARTS, nargs="+")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/gpu/bin")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--folder", type=pathlib.Path)
    options = parser.parse_args()
    options.bin = options.bin.resolve()
    options.folder = options.folder and options.folder.resolve()
    signal.signal(signal.SIGTERM, leave)  # so that every `with` ends what it began
    held = True
    for part in options.part:
        print(f"{part}:", flush=True)
        with tempfile.TemporaryDirectory(prefix="strait-gpu-", dir=options.folder) as folder:
            held &= PARTS[part](Bench(options, pathlib.Path(folder)))
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
