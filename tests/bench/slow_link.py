"""Codecs over a link on which float32 takes many times a step's compute: seconds a step, bytes and
losses in the first epoch and later, and what `auto` decides. See README.md.

usage: slow_link.py [--bin FOLDER] [--ratio 29] [--rate MBITS] [--seeds 2] [--epoch 2] [--steps 10]
                    [--codecs CODEC ...] [--quick]

--ratio 0: the link is as wide as the machine makes it. --epoch: steps of an epoch.
"""

import json
import os
import pathlib
import random
import statistics
import sysconfig
import tempfile

import machinery

MICRO_BATCHES = 8
ROWS = 2  # of a micro-batch: its message has several chunks
BATCH = MICRO_BATCHES * ROWS
WARM = 2  # steps before times count
MODEL = {"n_embd": 384, "n_layer": 4, "n_head": 6, "n_positions": 128}
SMALL = {"n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 64}


def bits(forward, backward):
    settings = {"forward": "delta", "forward_bits": forward, "backward": "fixed", "backward_bits": backward}
    return {f"codec.{key}": value for key, value in settings.items()}


def transform(forward, backward, first):
    settings = {"forward": "transform", "forward_bits": forward, "first_bits": first, "backward": "transform",
                "backward_bits": backward}
    return {f"codec.{key}": value for key, value in settings.items()}


CODECS = {
    "raw bf16": {"codec.wire_dtype": "bfloat16"}, "6/6": bits(6, 6), "4/4": bits(4, 4), "2/4": bits(2, 4),
    "transform 6/6, first 8": transform(6, 6, 8), "transform 4/5, first 6": transform(4, 5, 6),
    "transform 4/4, first 6": transform(4, 4, 6), "budget": {"codec.budget": "0.1 %"},
    "auto": {"codec.forward": "auto", "codec.backward": "auto"},
}


def file_name(codec):
    return codec.replace(",", "").replace(" ", "-").replace("/", "-")


def code_lines(length, count):
    """So many pieces of the standard library of the Python that runs us, each a line of this length."""
    folder = pathlib.Path(sysconfig.get_path("stdlib"))
    text = " ".join(file.read_text(errors="ignore") for file in sorted(folder.glob("*.py"))[:40])
    text = " ".join(text.encode("ascii", "ignore").decode().split())
    places = random.Random(machinery.SEED).sample(range(len(text) // length), count)
    return [text[place * length:(place + 1) * length] for place in places]


def make_bench(folder, model, epoch, steps):
    (folder / "model").mkdir()
    config = {**machinery.MODEL, **model, "tie_word_embeddings": False}
    (folder / "model/config.json").write_text(json.dumps(config))
    row = model["n_positions"]
    # With the token that ends a text each line is one row.
    (folder / "text.txt").write_text("\n".join(code_lines(row - 1, epoch * BATCH)) + "\n")
    settings = {"data.row": row, "data.shuffle": True, "pipeline.stages": 2, "train.steps": steps}
    settings |= {"train.batch": BATCH, "train.micro_batch": ROWS, "checkpoint.every": 0}
    for name, codec in {"raw fp32": {}, **CODECS}.items():
        machinery.write_recipe(folder, file_name(name), settings | codec)


class Measurement:
    def __init__(self, program, folder, codec, seed, rate):
        name = file_name(codec)
        words = ["--set", f"seed={seed}"]
        if rate:
            words += ["--set", f"hosts.simulate.rate={rate}kbit/s"]
        run = machinery.Run(program, folder, f"{name}.toml", words)
        self.steps = machinery.metrics_of(folder, name)
        self.decisions = [line["text"] for line in run.events("stage_event") if line["name"] == "codec_chosen"]

    def seconds(self, begin, end):
        return statistics.median(step["seconds"] for step in self.steps[begin:end])

    def megabytes(self, begin, end):
        """Of one direction, on average."""
        steps = self.steps[begin:end]
        both = sum(step["bytes_forward"] + step["bytes_backward"] for step in steps)
        return both / 2 / len(steps) / 1e6

    def loss(self, begin, end):
        return statistics.mean(step["loss"] for step in self.steps[begin:end])


def rate_for(program, folder, ratio):
    """Kilobits a second at which a direction of float32 takes `ratio` times a step."""
    raw = Measurement(program, folder, "raw fp32", machinery.SEED, 0)
    compute, size = raw.seconds(WARM, None), raw.megabytes(WARM, None)
    rate = int(size * 8e3 / (ratio * compute)) if ratio else 0
    print(f"raw fp32: {compute:.3f} s a step with a link that takes no time, {size:.2f} MB a direction")
    return rate


def main():
    options = machinery.options_of(__doc__, ratio=29.0, rate=0.0, seeds=2, epoch=2, steps=10, codecs=CODECS)
    if options.quick:
        options.seeds, options.steps = 1, 6
    program = options.bin / "strait"
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_bench(folder, SMALL if options.quick else MODEL, options.epoch, options.steps)
        if options.rate:
            rate = int(options.rate * 1e3)
        else:
            rate = rate_for(program, folder, options.ratio)
        measure(program, folder, options, rate)


def measure(program, folder, options, rate):
    print(f"link: {rate / 1e3:.2f} Mbit/s" if rate else "link: not shaped")
    print("seed  codec                   s a step:  first epoch  later  MB a direction: first  later  loss: first  last epoch")
    for seed in range(1, options.seeds + 1):
        for codec in options.codecs:
            one = Measurement(program, folder, codec, seed, rate)
            epoch = options.epoch
            print(f"{seed:4}  {codec:22}  {one.seconds(0, epoch):22.3f}  {one.seconds(epoch, None):5.3f}"
                  f"  {one.megabytes(0, epoch):21.3f}  {one.megabytes(epoch, None):5.3f}"
                  f"  {one.loss(0, epoch):11.4f}  {one.loss(-epoch, None):10.4f}",
                  flush=True)
            for text in one.decisions:
                print(f"      {text}")


if __name__ == "__main__":
    main()
