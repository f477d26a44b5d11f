"""What works under a pipeline: every feature with every family, on one stage and on three.

A cell of docs/pipelines.md is what its check here found: a tiny random model of the family is trained on packed rows, and
three stages have to do what one does, bit for bit, and what transformers does where it does the same. Some families
here; all with STRAIT_CAMPAIGNS=1 (`./strait test --all`), and with --write, which writes the page.

usage: pipelines_test.py [--write]   ($STRAIT_BIN: the folder of the programs, by default build/release/bin)
"""

import functools
import json
import os
import pathlib
import re
import sys
import tempfile

import training_test as training

import torch
import transformers
from safetensors.torch import load_file, save_file

from random_models import LOOP, save_model

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "pipelines.md"
STAGES = (1, 3)
SAMPLE = ("llama", "deepseek_v3")  # without a campaign
UNTIED = ("gptj",)  # its head has a bias
STEPS = 4
HEADER = """# What works under a pipeline

Made by `tests/golden/pipelines_test.py --write`, which tries every cell with a tiny random model of the family: on one
stage and on three (1F1B). `./strait test --all` tries all of them again, `./strait test` some families.

| column | what the check is |
|---|---|
| packing | losses of four steps are the same bits on one stage and on three; the first is that of |
| | `transformers`, which sees each document alone |
| tied | the same of a model whose token table is the LM head, too |
| LoRA, QLoRA | the same of adapters on all matrices, with dropout, over float32 and over `int4` |
| resume | steps after a checkpoint have the bits of the run that was not stopped |
| replicas | two replicas with exact sums have the losses of one to 1e-5 |
| eval | `strait eval` has the loss of `transformers` with the exported model to 1e-5 |
| generate | greedy tokens are those of `transformers`, computed over the stages |
| export | `transformers` loads it and misses nothing; files of one stage and of three have the same bytes |

"""


def settings_of(stages, **more):
    return {"pipeline.stages": stages, "train.steps": STEPS, "train.warmup": 0, **more}


class Cells:
    """The checks of one family. Each runs on all numbers of stages and returns those that it holds for."""

    def __init__(self, folder, family, seed):
        self.folder, self.family, self.seed = folder, family, seed
        self.rows = training.random_rows(seed)
        save_file(self.rows, folder / "train.safetensors")
        save_file(training.random_rows(seed + 1000), folder / "eval.safetensors")
        for name, tied in (("untied", False), ("tied", True)):
            if not (tied and family in UNTIED):
                save_model(self.model(tied), folder / name)

    def model(self, tied):
        if self.family == "gpt2":
            return training.random_model(tied, {}, self.seed)
        return training.random_family_model(self.family, {"tie_word_embeddings": tied}, self.seed)

    @functools.cache
    def run(self, name, stages, **more):
        """Losses of the run, by step."""
        sets = settings_of(stages, **{key.replace("__", "."): value for key, value in more.items()})
        sets |= {"checkpoint.every": 2, "checkpoint.keep": 3}
        training.train(self.folder, {"stages": stages, "set": sets}, name=f"{name}-{stages}")
        return self.losses(name, stages)

    def losses(self, name, stages):
        lines = (self.folder / f"runs/{name}-{stages}/metrics.jsonl").read_text().splitlines()
        return [json.loads(line)["loss"] for line in lines]

    def same_bits(self, name, **more):
        one = self.run(name, 1, **more)
        return [stages for stages in STAGES if self.run(name, stages, **more) == one and len(one) == STEPS]

    def full(self, stages):
        return self.run("full", stages, model__path="untied")

    @functools.cache
    def exported(self, stages):
        self.full(stages)
        training.strait(self.folder, "export", f"runs/full-{stages}", f"exported-{stages}")
        model, report = transformers.AutoModelForCausalLM.from_pretrained(
            self.folder / f"exported-{stages}", output_loading_info=True, **LOOP)
        assert not any(report.values()), report
        return model.eval()

    def packing(self):
        batch = {name: value[: training.BATCH] for name, value in self.rows.items()}
        with torch.no_grad():
            labels = training.labels_of(batch)
            loss = training.summed_loss(training.logits_of(self.model(False).double(), batch), labels) / (labels != -100).sum()
        right = training.relative(self.full(1)[:1], [loss.item()]) < training.LOSS
        return self.same_bits("full", model__path="untied") if right else []

    def tied(self):
        return self.same_bits("tied", model__path="tied") if self.family not in UNTIED else None

    def lora(self):
        return self.same_bits("lora", **self.adapters())

    def qlora(self):
        return self.same_bits("qlora", model__quantization="int4", **self.adapters())

    def adapters(self):
        return {"model__path": "untied", "model__lora__rank": 3, "model__lora__dropout": 0.1}

    def resume(self):
        def resumed(stages):
            before = self.full(stages)
            training.strait(self.folder, "resume", f"runs/full-{stages}", "--from", 2)
            lines = (self.folder / f"runs/full-{stages}/events.jsonl").read_text().splitlines()
            begun = [line for line in map(json.loads, lines) if line["event"] == "training"]
            return self.losses("full", stages) == before and len(begun) == 2

        return [stages for stages in STAGES if resumed(stages)]

    def replicas(self):
        more = {"model__path": "untied", "pipeline__replicas": 2, "sync__method": "allreduce"}
        return [stages for stages in STAGES
                if training.relative(self.run("replicas", stages, **more), self.full(1)) < training.LOSS]

    def eval(self):
        unseen = load_file(self.folder / "eval.safetensors")
        with torch.no_grad():
            labels = training.labels_of(unseen)
            loss = training.summed_loss(training.logits_of(self.exported(1).double(), unseen), labels) / (labels != -100).sum()

        def found(stages):
            self.full(stages)
            return json.loads(training.strait(self.folder, "eval", f"runs/full-{stages}", "--json"))["loss"]

        return [stages for stages in STAGES if training.relative([found(stages)], [loss.item()]) < training.LOSS]

    def generate(self):
        model = self.exported(1).float()
        return [stages for stages in STAGES if self.says_the_same(model, stages)]

    def says_the_same(self, model, stages):
        self.full(stages)
        try:
            training.assert_same_tokens(self.folder, model, run=f"runs/full-{stages}")
        except AssertionError as error:
            print(error)
            return False
        return True

    def export(self):
        def tensors(stages):
            self.exported(stages)
            return load_file(self.folder / f"exported-{stages}" / "model.safetensors")

        first = tensors(1)
        return [stages for stages in STAGES if (ours := tensors(stages)).keys() == first.keys()
                and all(torch.equal(ours[name], value) for name, value in first.items())]


COLUMNS = {"packing": Cells.packing, "tied": Cells.tied, "LoRA": Cells.lora, "QLoRA": Cells.qlora, "replicas": Cells.replicas,
           "eval": Cells.eval, "generate": Cells.generate, "export": Cells.export, "resume": Cells.resume}


def row_of(family, seed):
    with tempfile.TemporaryDirectory() as folder:
        cells = Cells(pathlib.Path(folder), family, seed)
        texts = []
        for name, check in COLUMNS.items():
            held = check(cells)
            texts.append("untied only" if held is None else ", ".join(map(str, held)) or "no")
        row = "| `" + "` | ".join([family, " | ".join(texts)]) + " |"
    print(row, flush=True)
    return row


def families():
    """Of the program; its text parts of models of text and images are the same families."""
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text('{"model_type": "none"}')
        (pathlib.Path(folder) / "a.toml").write_text(
            '[model]\npath = "."\nweights = "random"\n[data]\ntrain = "none"\n[train]\nsteps = 1\n')
        done = training.subprocess.run([training.STRAIT, "plan", "a.toml"], cwd=folder, capture_output=True, text=True)
    listed = re.findall(r'"(\w+)"', done.stderr.partition("one of ")[2])
    return [name for name in listed if name not in ("qwen3_5", "qwen3_5_moe", "mistral3")]


def main():
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    every = families()
    assert every and set(every) == {"gpt2", *training.FAMILIES}, set(every) ^ {"gpt2", *training.FAMILIES}
    write = "--write" in sys.argv
    chosen = every if write or os.environ.get("STRAIT_CAMPAIGNS") else SAMPLE
    rows = {family: row_of(family, seed) for seed, family in enumerate(every) if family in chosen}
    if write:
        table = [f"| `model_type` | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|", *rows.values()]
        PAGE.write_text(HEADER + "\n".join(table) + "\n")
        return
    page = PAGE.read_text()
    assert page.startswith(HEADER), "the page has another text than its test"
    listed = re.findall(r"^\| `(\w+)` \| \d", page, re.MULTILINE)
    assert listed == every, f"the page has other families: {set(listed) ^ set(every)}; write it with --write"
    wrong = [row for row in rows.values() if row not in page.splitlines()]
    assert not wrong, f"the page says something else than {wrong}; write it with --write"
    print(f"{len(rows)} rows as on the page")


if __name__ == "__main__":
    main()
