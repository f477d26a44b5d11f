"""Checkpoints beside training, in a pause and in memory, in one run each: how long training stands still. See README.md.

usage: beside_saving.py [--bin FOLDER] [--folder FOLDER] [--every 50 10] [--checkpoints 3]
                        [--row 128] [--rows 4] [--modes none pause beside memory] [--codecs raw delta] [--quick]

Two stages of GPT-2's width, one thread each. --folder: on the disk that is to be measured.
"""

import json
import random
import statistics
import sys

import machinery
import narrow_links
import tied_table

ROW = 128  # tokens, at most
SIZES = {"vocab_size": 8000, "n_embd": 768, "n_head": 12, "n_layer": 2, "n_positions": ROW}
SMALL = {"vocab_size": 500, "n_embd": 64, "n_head": 2, "n_layer": 2, "n_positions": ROW}
MODES = {"none": None, "pause": "0B", "beside": "1GiB", "memory": "1GiB"}
CODECS = {"raw": {}, "delta": narrow_links.DELTA}


def make_bench(folder, sizes, options):
    (folder / "model").mkdir()
    (folder / "model/config.json").write_text(json.dumps(dict(machinery.MODEL, **sizes)))
    path = folder / "tokens.safetensors"
    tied_table.write_rows(path, 8 * options.rows, options.row, sizes["vocab_size"], "random")


class Measurement:
    """One run. The first step and the last checkpoint, which is always waited for, do not count."""

    def __init__(self, program, folder, mode, codec, every, options):
        name = f"{mode}-{every}-{random.randrange(10**9)}"
        steps = every * options.checkpoints + max(every // 2, 4)
        settings = {
            "data.train": "tokens.safetensors", "data.tokenizer": None, "data.row": options.row, "pipeline.stages": 2,
            "train.steps": steps, "train.batch": options.rows, "train.micro_batch": 1, "train.learning_rate": 1e-4,
            "checkpoint.every": every if mode in ("pause", "beside") else 0, "checkpoint.memory": MODES[mode] or "1GiB",
            "checkpoint.memory_every": every if mode == "memory" else 0,
        }
        machinery.write_recipe(folder, name, settings | codec)
        machinery.Run(program, folder, f"{name}.toml")
        run = folder / f"runs/{name}"
        lines = machinery.metrics_of(folder, name)[1:]
        seconds = [line["seconds"] for line in lines]
        self.steps = len(seconds)
        self.step = statistics.median(seconds)
        # A pause lies between two steps; what a step waits for lies in it.
        self.stalls = [line["checkpoint_seconds"] for line in lines if line["step"] % every == 1]
        self.stood = sum(line["checkpoint_seconds"] for line in lines)
        self.seconds = sum(seconds) + (self.stood if mode == "pause" else 0)
        self.bytes = sum(path.stat().st_size for path in run.glob("checkpoints/step-*/*.safetensors"))
        self.bytes /= max(1, len(list(run.glob("checkpoints/step-*"))))


def main():
    options = machinery.options_of(__doc__, folder=None, every=[50, 10], checkpoints=3, row=ROW, rows=4, modes=MODES,
                                   codecs=CODECS)
    program = options.bin / "strait"
    every = [5] if options.quick else options.every
    with machinery.scratch(options.folder) as folder:
        print("codec  every  checkpoints  MB each  s/step  stands still, s each  share of time  s a step in all")
        make_bench(folder, SMALL if options.quick else SIZES, options)
        for codec in options.codecs:
            for interval in every:
                for mode in options.modes:
                    one = Measurement(program, folder, mode, CODECS[codec], interval, options)
                    each = statistics.mean(one.stalls) if one.stalls else 0
                    print(f"{codec:5}  {interval:5}  {mode:11}  {one.bytes / 1e6:7.1f}  {one.step:6.3f}"
                          f"  {each:20.4f}  {one.stood / one.seconds:13.2%}"
                          f"  {one.seconds / one.steps:15.3f}",
                          flush=True)


if __name__ == "__main__":
    sys.exit(main())
