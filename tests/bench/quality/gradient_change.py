"""How far a sample's gradient at a boundary has moved since the sample's last visit (what `delta` would
send of gradients), beside how far its activation has; and how large a step's noise is there, by which
`auto` judges errors. Plain PyTorch, on a model and rows that quality.py has made.

usage: gradient_change.py --folder FOLDER --model NAME --rows NAME [--rates X ...] [--epochs 4]
                          [--batch 16] [--samples N]
"""

import argparse
import json
import pathlib
import struct
import sys

WARMUP = 10  # steps, as the bench's cells
COLUMNS = ["rate", "epoch", "above block", "loss", "activation's change", "gradient's change", "from its best multiple",
           "square ÷ noise", "signal ÷ noise"]


def read_rows(path, count):
    """The rows of tasks.write_rows."""
    import torch

    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    shape = json.loads(data[8 : 8 + length])["input_ids"]["shape"]
    tokens = torch.frombuffer(bytearray(data[8 + length :]), dtype=torch.int32)
    return tokens.reshape(shape)[:count].long()


class Values:
    """What crosses a boundary in one direction: the last visit's by sample, sums of an epoch."""

    def __init__(self):
        self.last = {}
        self.clear()

    def clear(self):
        self.values = self.changes = self.products = self.lasts = 0.0
        self.noise = self.sums = self.squares = 0.0

    def visit(self, samples, values):
        values = values.detach()
        self.judge(values)
        for sample, value in zip(samples, values):
            if sample in self.last:
                last = self.last[sample]
                self.values += float(value.square().sum())
                self.changes += float((value - last).square().sum())
                self.products += float((value * last).sum())
                self.lasts += float(last.square().sum())
            self.last[sample] = value.clone()

    def judge(self, values):
        """As framework/codec/gradient_noise does: of the sum over the rows of a step."""
        sums = values.sum(1)
        noise = float(sums.var(0).sum()) * len(sums)
        self.noise += noise
        self.sums += float(sums.sum(0).square().sum()) - noise
        self.squares += float(values.square().sum())

    def change(self):
        return (self.changes / self.values) ** 0.5

    def change_of_best_multiple(self):
        return (1 - self.products**2 / (self.values * self.lasts)) ** 0.5


class Probe:
    """Activations and gradients above some blocks of a model."""

    def __init__(self, model, blocks):
        self.forward = {block: Values() for block in blocks}
        self.backward = {block: Values() for block in blocks}
        self.samples = []  # of the step
        for block in blocks:
            model.transformer.h[block].register_forward_hook(self.hook(block))

    def hook(self, block):
        def seen(_module, _inputs, output):
            hidden = output[0] if isinstance(output, tuple) else output
            self.forward[block].visit(self.samples, hidden)
            hidden.register_hook(lambda grad: self.backward[block].visit(self.samples, grad))

        return seen

    def row(self, block):
        activations, gradients = self.forward[block], self.backward[block]
        return [activations.change(), gradients.change(), gradients.change_of_best_multiple(),
                gradients.squares / gradients.noise, gradients.sums / gradients.noise]

    def clear(self):
        for values in (*self.forward.values(), *self.backward.values()):
            values.clear()


def train(model, rows, rate, options, report):
    """As a cell does: AdamW, warm-up, cosine; after each epoch but the first report(epoch, loss, probe)."""
    import torch

    probe = Probe(model, options.blocks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.1)
    per_epoch = len(rows) // options.batch
    steps = options.epochs * per_epoch
    for epoch in range(options.epochs):
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(epoch))
        losses = []
        for at, samples in enumerate(order.split(options.batch)[:per_epoch]):
            step = epoch * per_epoch + at + 1
            cosine = (1 + torch.cos(torch.tensor(torch.pi * step / steps)).item()) / 2
            optimizer.param_groups[0]["lr"] = rate * min(1, step / WARMUP) * cosine
            probe.samples = samples.tolist()
            loss = model(input_ids=rows[samples], labels=rows[samples]).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        if epoch > 0:
            report(epoch + 1, sum(losses) / len(losses), probe)
        probe.clear()


def options_of(words):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="of quality.py")
    parser.add_argument("--model", required=True, help="model-english, model-code, model-headers")
    parser.add_argument("--rows", required=True, help="code, english, perl")
    parser.add_argument("--rates", nargs="*", type=float, default=[1e-3])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--samples", type=int, default=1 << 30, help="at most")
    return parser.parse_args(words)


def main(words=None):
    options = options_of(words)
    try:
        import torch
        import transformers
    except ImportError as missing:
        print(f"skipped: {missing}")
        return 77
    torch.set_num_threads(1)
    rows = read_rows(options.folder / f"{options.rows}.safetensors", options.samples)
    print("| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|", sep="\n")
    for rate in options.rates:
        model = transformers.GPT2LMHeadModel.from_pretrained(options.folder / options.model)
        quarter = len(model.transformer.h) // 4
        options.blocks = [quarter * stage - 1 for stage in (1, 2, 3)]

        def report(epoch, loss, probe, rate=rate):
            for block in options.blocks:
                numbers = [f"{value:.2f}" for value in probe.row(block)]
                words = [f"{rate:g}", str(epoch), str(block), f"{loss:.3f}", *numbers]
                print("| " + " | ".join(words) + " |", flush=True)

        train(model.train(), rows, rate, options, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
