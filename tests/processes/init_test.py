"""`strait init` with what an example needs, and of the files of other tools: recipes that the program takes."""

import json
import os
import pathlib
import sys
import tomllib
import unittest.mock

import runs

try:
    import yaml  # noqa: F401: of the Python that converts, which is this one
except ImportError as error:
    print(f"skipped: {error}; ./strait test installs it")
    sys.exit(77)

AXOLOTL = """
base_model: NousResearch/Llama-3.2-1B
load_in_4bit: true
strict: false
datasets:
  - path: teknium/GPT4-LLM-Cleaned
    type: alpaca
  - path: mine.jsonl
    type: chat_template
val_set_size: 0.1
output_dir: ./outputs/qlora-out
adapter: qlora
lora_model_dir:
sequence_len: 2048
sample_packing: true
lora_r: 32
lora_alpha: 16
lora_dropout: 0.05
lora_target_linear: true
gradient_accumulation_steps: 4
micro_batch_size: 2
num_epochs: 2
optimizer: paged_adamw_32bit
lr_scheduler: cosine
learning_rate: 2e-4
bf16: auto
gradient_checkpointing: true
flash_attention: true
warmup_steps: 10
saves_per_epoch: 1
weight_decay: 0.01
deepspeed: zero2.json
"""
LLAMA_FACTORY = """
model_name_or_path: model
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 4
lora_target: c_attn,c_proj
dataset: train
template: llama3
cutoff_len: 32
output_dir: saves/tiny/sft
save_steps: 500
per_device_train_batch_size: 2
gradient_accumulation_steps: 2
learning_rate: 1.0e-4
num_train_epochs: 3.0
lr_scheduler_type: linear
warmup_ratio: 0.1
seed: 5
"""
TRL = """
model_name_or_path: model
dataset_name: train.jsonl
max_length: 32
packing: true
report_to: none
max_steps: 3
per_device_train_batch_size: 4
learning_rate: 1e-3
adam_beta2: 0.95
lr_scheduler_type: polynomial
output_dir: tiny-sft
"""


class Init(runs.RunCase):
    def setUp(self):
        super().setUp()
        python = unittest.mock.patch.dict(os.environ, STRAIT_PYTHON=sys.executable)
        python.start()
        self.addCleanup(python.stop)

    def converted(self, text, *options):
        (self.home / "theirs.yml").write_text(text)
        out = self.ok("init", "--from", "theirs.yml", *options)
        written = (self.home / (options[0] if options else "theirs.toml")).read_text()
        return out, written, tomllib.loads(written)

    def refused(self, text, sentence):
        (self.home / "theirs.yml").write_bytes(text if isinstance(text, bytes) else text.encode())
        code, out, err = self.strait("init", "--from", "theirs.yml")
        self.assertEqual((code, out), (10, ""), err)
        self.assertRegex(err, rf"\Astrait: {sentence}[^\n]*\n\Z")
        self.assertFalse((self.home / "theirs.toml").exists())

    def test_example_in_a_folder_has_its_model_and_data_there(self):
        self.assertIn("then: strait run 'first steps/quickstart.toml'", self.ok("init", "quickstart", "first steps"))
        folder = self.home / "first steps"
        text = (folder / "quickstart.toml").read_text()
        self.assertNotIn('"recipes/', text)
        self.assertIn("#     strait run 'first steps/quickstart.toml'\n", text)
        self.assertNotIn("./strait", text)
        self.assertIn("strait: init --list takes no name", self.ended(10, "init", "--list", "quickstart")[1])
        for part in ("data/dates.jsonl", "data/dates-eval.jsonl", "models/tiny-gpt2/config.json"):
            self.assertEqual(runs.hash_of(folder / part), runs.hash_of(runs.ROOT / "recipes" / part))
        recipe = tomllib.loads(text)
        self.assertEqual({pathlib.Path(recipe["model"]["path"]).parent.parent, pathlib.Path(recipe["data"]["train"]).parent.parent},
                         {folder.resolve()})
        self.ok("run", folder / "quickstart.toml", "--set", "train.steps=2")
        # Examples share files; those that a user has changed stay.
        self.ok("init", "replicas", "first steps")
        (folder / "data/dates.jsonl").write_text("mine\n")
        (folder / "quickstart.toml").unlink()
        _, err = self.ended(10, "init", "quickstart", "first steps")
        self.assertIn("first steps/data/dates.jsonl exists already", err)
        self.assertEqual((folder / "data/dates.jsonl").read_text(), "mine\n")

    def test_axolotl(self):
        out, text, recipe = self.converted(AXOLOTL, "mine.toml")
        self.assertEqual(recipe, {
            "name": "qlora-out",
            "model": {"path": "Llama-3.2-1B", "dtype": "bfloat16", "recompute": "layer", "quantization": "nf4",
                      "lora": {"rank": 32, "alpha": 16, "dropout": 0.05, "targets": "all-linear"}},
            "data": {"train": ["GPT4-LLM-Cleaned.jsonl", "mine.jsonl"], "hold_out": 0.1, "row": 2048, "too_long": "drop",
                     "packing": "first_fit"},
            "pipeline": {"stages": 1},
            "train": {"epochs": 2, "batch": 8, "micro_batch": 2, "learning_rate": 2e-4, "decay": "cosine", "warmup": 10,
                      "weight_decay": 0.01, "betas": [0.9, 0.999]},
        })
        self.assertRegex(text, r"(?m)^rank = 32 +# lora_r$")
        self.assertIn("hf download NousResearch/Llama-3.2-1B --local-dir Llama-3.2-1B", text)
        for key in ("flash_attention", "saves_per_epoch", "deepspeed", "optimizer = paged_adamw_32bit"):
            self.assertRegex(out, f"(?m)^no counterpart: {key}")
            self.assertRegex(text, f"(?m)^#   {key}")
        self.assertNotIn("strict", out)  # is switched off

    def test_preferences(self):
        for text, wanted in ((AXOLOTL + "rl: dpo\nrl_beta: 0.2\n", {"loss": "dpo", "beta": 0.2}),
                             (AXOLOTL + "rl: kto\nrl_beta: 0.2\n", {"loss": "kto", "beta": 0.2}),
                             (AXOLOTL + "rl: orpo\norpo_alpha: 0.3\n", {"loss": "orpo", "beta": 0.3}),
                             (LLAMA_FACTORY.replace("stage: sft", "stage: dpo"), {"loss": "dpo", "beta": 0.1}),
                             (LLAMA_FACTORY.replace("stage: sft", "stage: dpo\npref_loss: simpo\npref_beta: 2"),
                              {"loss": "simpo", "beta": 2, "margin": 0.5}),
                             (TRL + "use_peft: true\nloss_type: sigmoid\nbeta: 0.4\n", {"loss": "dpo", "beta": 0.4})):
            out, _, recipe = self.converted(text)
            self.assertEqual(recipe["train"]["preference"], wanted)
            self.assertEqual(recipe["data"]["too_long"], "drop")
            self.assertNotRegex(out, "counterpart: (rl|pref|beta|loss_type|orpo_alpha)")
            (self.home / "theirs.toml").unlink()

    def test_moments_of_8_bits_are_kept(self):
        for text in (AXOLOTL.replace("paged_adamw_32bit", "adamw_bnb_8bit"), LLAMA_FACTORY + "optim: adamw_8bit\n",
                     TRL + "optim: paged_adamw_8bit\n"):
            out, _, recipe = self.converted(text)
            self.assertEqual(recipe["train"]["moments"], "int8")
            self.assertNotIn("no counterpart: optim", out)
            (self.home / "theirs.toml").unlink()

    def test_data_of_the_hub_are_named_with_their_part(self):
        for text in (TRL.replace("train.jsonl", "allenai/c4\ndataset_config: en\ndataset_train_split: validation"),
                     "base_model: model\npretraining_dataset:\n  - {path: allenai/c4, name: en, split: validation, type: pretrain}\n"):
            out, made, recipe = self.converted(text)
            self.assertEqual(recipe["data"]["train"], "c4.jsonl")
            self.assertIn("datasets.load_dataset('allenai/c4', 'en', split='validation').to_json('c4.jsonl')", made)
            self.assertNotRegex(out, "counterpart: (dataset_config|pretraining_dataset|type|report_to)")
            (self.home / "theirs.toml").unlink()

    def test_llama_factory(self):
        out, text, recipe = self.converted(LLAMA_FACTORY)
        self.assertEqual(recipe["model"], {"path": "model", "lora": {"rank": 4, "alpha": 8, "targets": ["c_attn", "c_proj"]}})
        self.assertEqual((recipe["name"], recipe["seed"], recipe["train"]["decay"]), ("sft", 5, "linear"))
        self.assertEqual((recipe["train"]["batch"], recipe["train"]["epochs"], recipe["train"]["weight_decay"]), (4, 3, 0))
        self.assertEqual(recipe["data"], {"train": "train.jsonl", "row": 32, "too_long": "truncate", "packing": "single"})
        self.assertRegex(text, r"(?m)^warmup = 0 +# edit: 0.1 of the steps")
        self.assertIn("no counterpart: template = llama3: the tokenizer's own", out)
        self.ok("plan", "theirs.toml", "--set", "model.weights=random", "--set", "data.tokenizer=bytes")

    def test_trl_as_a_run(self):
        self.write_model("full", weights=True)
        out, _, recipe = self.converted(TRL.replace("model\n", "full\n", 1))
        self.assertIn("no counterpart: lr_scheduler_type = polynomial", out)
        self.assertEqual(recipe["train"]["betas"], [0.9, 0.95])
        self.assertIn("step 3/3", self.ok("run", "theirs.toml", "--set", "data.tokenizer=bytes"))
        self.assertEqual(len(self.run_of("tiny-sft").metrics()), 3)

    def test_what_is_not_converted_is_one_sentence(self):
        self.refused("a: 1\n", "theirs.yml: it is not a file of axolotl .* LLaMA-Factory .* or TRL")
        self.refused("- a\n", "theirs.yml: it is not a table of keys")
        self.refused("a: [\n", "theirs.yml: it is not YAML: .*line 2")
        self.refused(b"a: \xff\n", "theirs.yml: it is not YAML")
        self.refused(AXOLOTL + "rl: grpo\n", "theirs.yml: grpo is trained; strait learns .* by dpo, orpo, simpo or kto")
        self.refused(AXOLOTL.replace("2e-4", "fast"), "theirs.yml: learning_rate is fast, but must be a number")
        self.refused(AXOLOTL.replace("lora_r: 32", "lora_r: 0"), r"model.lora.rank is 0 \(the recipe made of theirs.yml:")
        # A table that is far larger than its text.
        laughs = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9) if i else 1}]\n" for i in range(12))
        self.assertIn("no counterpart: a11 = a list", self.converted(laughs + TRL)[0])
        (self.home / "theirs.toml").unlink()
        code, _, err = self.strait("init", "--from", "absent.yml")
        self.assertEqual((code, err), (10, "strait: absent.yml: No such file or directory\n"))
        with unittest.mock.patch.dict(os.environ, STRAIT_PYTHON="/bin/false"):
            self.refused(TRL, "theirs.yml cannot be converted: .* STRAIT_PYTHON changes")


if __name__ == "__main__":
    runs.main()
