"""Makes a recipe of a YAML of axolotl, LLaMA-Factory or TRL; `strait init --from` starts it.

Prints {"recipe", "without"}: the recipe as TOML, each line with the key that it comes from, and the keys that
have no counterpart; or {"error": sentence}. A key is converted only if it means the same here. What a tool does where
a key is absent is written into the recipe, too, unless strait does the same.
"""

import json
import math
import os
import pathlib
import re
import sys

LARGEST = 1 << 20  # bytes of a file

# What is called otherwise in each tool. The other names are those of transformers, in all three.
NAMES = {
    "axolotl": {"model": "base_model", "epochs": "num_epochs", "micro": "micro_batch_size", "row": "sequence_len",
                "decay": "lr_scheduler", "optimizer": "optimizer", "packing": "sample_packing", "rank": "lora_r",
                "share": "val_set_size", "targets": "lora_target_modules", "saved": "lora_modules_to_save",
                "rslora": "peft_use_rslora", "dora": "peft_use_dora", "adapter": "lora_model_dir", "beta": "rl_beta"},
    "LLaMA-Factory": {"row": "cutoff_len", "rank": "lora_rank", "share": "val_size", "targets": "lora_target",
                      "saved": "additional_target", "rslora": "use_rslora", "dora": "use_dora", "adapter": "adapter_name_or_path", "beta": "pref_beta"},
    "TRL": {"row": "max_length", "rank": "lora_r", "targets": "lora_target_modules", "saved": "lora_modules_to_save",
            "rslora": "use_rslora", "dora": "use_dora"},
}
OF_TRANSFORMERS = {"model": "model_name_or_path", "epochs": "num_train_epochs", "micro": "per_device_train_batch_size",
                   "decay": "lr_scheduler_type", "optimizer": "optim", "packing": "packing"}

# What the tools take where a key is absent, if that is not what strait takes.
DEFAULTS = {
    "axolotl": {"epochs": 1, "micro": 1, "row": 512, "decay": "cosine", "warmup_ratio": 0.03},
    "LLaMA-Factory": {"epochs": 3, "micro": 8, "row": 2048, "decay": "linear", "learning_rate": 5e-5, "rank": 8},
    "TRL": {"epochs": 3, "micro": 8, "row": 1024, "decay": "linear", "learning_rate": 2e-5, "rank": 16,
            "lora_alpha": 32, "lora_dropout": 0.05},
}

DECAYS = {"cosine": "cosine", "linear": "linear", "constant": "constant", "constant_with_warmup": "constant"}
SAME_OPTIMIZERS = {"adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_apex_fused"}
# Block-wise, as bitsandbytes and torchao do; the pages are a matter of memory.
OPTIMIZERS_OF_8_BITS = {"adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit", "adamw_torch_8bit", "ao_adamw_8bit"}
# Records that strait knows by their keys.
KNOWN_RECORDS = {"alpaca", "completion", "chat_template", "pretrain", "sharegpt"}

REASONS = {
    "deepspeed": "[pipeline] divides the model", "fsdp": "[pipeline] divides the model",
    "fsdp_config": "[pipeline] divides the model", "chat_template": "the tokenizer's own template is used",
    "template": "the tokenizer's own template is used", "dataset_dir": "data.train names files",
    "fp16": "float32 or bfloat16",
    "resume_from_checkpoint": "strait resume RUN", "max_samples": "give a shorter file",
    "trust_remote_code": "no code of a model is run", "logging_steps": "metrics.jsonl has every step",
    "beta": "docs/data.md has the losses of preferences",
    "evals_per_epoch": "train.eval_every counts steps", "saves_per_epoch": "checkpoint.every counts steps",
    "eval_steps": "no data to evaluate on is named", "report_to": "strait track RUN", "wandb_project": "strait track RUN",
    **dict.fromkeys(("attn_implementation", "flash_attention", "flash_attn"), "libtorch's attention is used"),
}


class Refusal(Exception):
    pass


def clean(value):
    """One line of a comment, whatever a key or value holds. Lists and tables may be far larger than their YAML."""
    text = f"a {type(value).__name__}" if isinstance(value, (dict, list)) else str(value)[:200]
    return "".join(c if c.isprintable() else "?" for c in text)


def toml(value):
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def number(name, value, kind=float):
    """YAML reads 2e-4, which has no point, as a text."""
    try:
        wanted = float("nan" if isinstance(value, bool) else value)
    except (TypeError, ValueError, OverflowError):
        wanted = math.nan
    if not math.isfinite(wanted) or kind is int and wanted != int(wanted):
        raise Refusal(f"{clean(name)} is {clean(value)}, but must be a{'n integer' if kind is int else ' number'}")
    return kind(wanted)


class Conversion:
    """Keys of the file that are not used yet, and lines of the recipe."""

    def __init__(self, tool, values):
        self.tool = tool
        self.names = {**OF_TRANSFORMERS, **NAMES[tool]}
        self.left = {name: value for name, value in values.items() if value is not None}
        self.sections = {}
        self.without = []

    def has(self, key):
        return self.names.get(key, key) in self.left

    def take(self, key, default=None):
        """(the key's name in the file, its value), or what the tool takes where it is absent."""
        name = self.names.get(key, key)
        if name in self.left:
            return name, self.left.pop(name)
        return f"{name} is absent: what {self.tool} takes then", DEFAULTS[self.tool].get(key, default)

    def is_set(self, key):
        return self.take(key, False)[1] in (True, "true", "auto", "full", "unsloth", "offload")

    def put(self, key, value, comment):
        section, _, name = key.rpartition(".")
        self.sections.setdefault(section, []).append(f"{name} = {toml(value)}  # {clean(comment)}\n")

    def lacks(self, name, value, reason):
        self.without.append(f"{clean(name)} = {clean(value)}: {reason}")

    def put_number(self, key, source, kind=float, default=None):
        name, value = self.take(source, default)
        if value is not None:
            self.put(key, number(name, value, kind), name)

    def text(self, file):
        lines = [f"# Made of {clean(file)}, a file of {self.tool}, by strait init --from. Comments name its keys.\n"]
        if self.without:
            lines += ["#\n# Nothing here corresponds to:\n", *(f"#   {line}\n" for line in self.without)]
        for section in ["", "model", "model.lora", "data", "pipeline", "train", "train.preference", "checkpoint"]:
            if section in self.sections:
                lines += ["\n", *([f"[{section}]\n"] if section else []), *self.sections[section]]
        return "".join(lines)


def convert_model(made):
    name, model = made.take("model")
    if os.path.isdir(model):
        made.put("model.path", model, name)
    else:
        folder = model.rstrip("/").rpartition("/")[2]
        made.put("model.path", folder, f"edit: {name}, from: hf download {model} --local-dir {folder}")
    types = [made.take(key)[1] for key in ("dtype", "torch_dtype")]
    if made.is_set("bf16") or "bfloat16" in types:
        made.put("model.dtype", "bfloat16", "bf16; masters are float32")
    if made.is_set("gradient_checkpointing"):
        made.put("model.recompute", "layer", "gradient_checkpointing")
    convert_adapters(made)


def uses_adapters(made):
    if made.tool == "TRL":
        return made.is_set("use_peft")
    key, default = ("adapter", None) if made.tool == "axolotl" else ("finetuning_type", "lora")
    kind = made.left.pop(key, default)
    if kind not in ("lora", "qlora", "full", None, ""):
        made.lacks(key, kind, "strait trains all weights, or LoRA")
    return kind in ("lora", "qlora")


def convert_adapters(made):
    bits = number("quantization_bit", made.left.pop("quantization_bit", 0), int)
    bits = 4 if made.is_set("load_in_4bit") else 8 if made.is_set("load_in_8bit") else bits
    if not uses_adapters(made):
        return
    kind = made.left.pop("bnb_4bit_quant_type", "nf4")
    if bits == 4 and kind == "nf4":
        made.put("model.quantization", "nf4", "4 bits")
    elif bits == 8:
        made.put("model.quantization", "int8", "8 bits, in groups of 64 values")
    elif bits:
        made.lacks("quantization", f"{kind} of {bits} bits", "nf4, int4, int8")
    if made.has("adapter"):
        name, adapter = made.take("adapter")
        made.put("model.adapter", clean(adapter), name)
        return  # its settings count
    name, rank = made.take("rank", 8)
    rank = number(name, rank, int)
    made.put("model.lora.rank", rank, name)
    made.put_number("model.lora.alpha", "lora_alpha", default=2 * rank if made.tool == "LLaMA-Factory" else None)
    made.put_number("model.lora.dropout", "lora_dropout")
    convert_targets(made)
    for kind in ("rslora", "dora"):
        if made.is_set(kind):
            made.put(f"model.lora.{kind}", True, made.names[kind])
    name, saved = made.take("saved")
    if saved:
        made.put("model.lora.modules_to_save", names_of(saved), name)


def names_of(value):
    return [clean(one).strip() for one in (value if isinstance(value, list) else str(value).split(","))]


def convert_targets(made):
    linear = made.is_set("lora_target_linear")
    name, targets = made.take("targets", "all" if made.tool == "LLaMA-Factory" else None)
    if linear or targets in ("all", "all-linear", ["all-linear"]):
        made.put("model.lora.targets", "all-linear", "lora_target_linear" if linear else name)
    elif targets:
        # PEFT takes a text as a pattern, LLaMA-Factory as names.
        is_pattern = isinstance(targets, str) and made.tool != "LLaMA-Factory"
        made.put("model.lora.targets", targets if is_pattern else names_of(targets), name)
    else:
        made.put("model.lora.targets", "all-linear", f"edit: without {name} PEFT chooses by the model")


def data_file(made, entry):
    """A file of records, and what a user does to have it."""
    path, files = clean(entry.get("path") or ""), entry.get("data_files")
    if files and path in ("json", "text", ""):
        path = clean(files[0] if isinstance(files, list) else files)
    if pathlib.Path(path).suffix in (".jsonl", ".ndjson", ".txt"):
        return path, ""
    if pathlib.Path(path).suffix in (".json", ".parquet", ".csv"):
        return str(pathlib.Path(path).with_suffix(".jsonl")), f"{path} as JSONL"
    split = clean(entry.get("split") or "train")
    part = f"{clean(entry['name'])!r}, " if entry.get("name") else ""
    file = path.rstrip("/").rpartition("/")[2] + ".jsonl"
    return file, f"datasets.load_dataset({path!r}, {part}split={split!r}).to_json({file!r})"


def check_records(made, entry):
    kind = entry.get("type")
    if kind is not None and (not isinstance(kind, str) or kind.partition(".")[0] not in KNOWN_RECORDS):
        made.lacks("type", kind if isinstance(kind, str) else "a table", "docs/data.md has the forms of records")
    if kind == "alpaca":
        made.lacks("type", kind, "the tokenizer's chat template writes the prompt")
    for key, known in (("field_messages", ("messages", "conversations")), ("field", ("text",)),
                       ("field_chosen", ("chosen",)), ("field_rejected", ("rejected",))):
        if entry.get(key) not in (None, *known):
            made.lacks(key, entry[key], f"records have {' or '.join(known)}")


def entries_of(made, key):
    value = made.left.pop(key, None)
    if made.tool == "LLaMA-Factory":
        return [{"path": f"{name}.json"} for name in names_of(value)] if value else []
    if isinstance(value, str):  # of TRL
        return [{"path": value, "name": made.left.pop("dataset_config", None),
                 "split": made.left.pop("dataset_train_split", None)}]
    entries = value if isinstance(value, list) else [value] if value else []
    if not all(isinstance(entry, dict) for entry in entries):
        raise Refusal(f"{key} has an entry that is not a table")
    return entries


def put_data(made, key, source):
    entries = entries_of(made, source)
    for entry in entries:
        check_records(made, entry)
    files = [data_file(made, entry) for entry in entries]
    paths = list(dict.fromkeys(path for path, _ in files))
    edits = "; ".join(dict.fromkeys(edit for _, edit in files if edit))
    if paths:
        made.put(key, paths[0] if len(paths) == 1 else paths, f"edit: {source}: {edits}" if edits else source)
    return bool(paths)


def convert_data(made):
    def first_of(*keys):
        return next((key for key in keys if key in made.left), keys[-1])

    sources = {"axolotl": (first_of("pretraining_dataset", "datasets"), "test_datasets"),
               "LLaMA-Factory": ("dataset", "eval_dataset"), "TRL": (first_of("datasets", "dataset_name"), "")}
    train, evaluation = sources[made.tool]
    if not put_data(made, "data.train", train):
        made.put("data.train", "train.jsonl", f"edit: there is no {train}")
    evaluates = bool(evaluation) and put_data(made, "data.eval", evaluation)
    name, share = made.take("share", 0)
    share = number(name, share)
    if 0 < share < 1 and not evaluates:
        made.put("data.hold_out", share, name)
        evaluates = True
    elif share:
        made.lacks(name, share, "data.hold_out is a share, data.eval a file")
    # The name of TRL's first versions.
    if made.tool == "TRL" and not made.has("row") and "max_seq_length" in made.left:
        made.names["row"] = "max_seq_length"
    made.put_number("data.row", "row", int)
    return evaluates


def convert_preference(made):
    """Whether the tool learns which of two answers is better."""
    left = made.left
    kind = left.pop("rl", None) or left.pop("reward_model", None) or left.get("stage", "sft")
    if made.tool == "TRL":
        kind = left.pop("loss_type", "nll")
    elif made.tool == "LLaMA-Factory" and kind == "dpo":
        kind = left.pop("pref_loss", "sigmoid")
    if kind in ("sft", "pt", "nll"):
        return False
    kind = "dpo" if kind == "sigmoid" else kind
    if kind not in ("dpo", "orpo", "simpo", "kto"):
        raise Refusal(f"{clean(kind)} is trained; strait learns texts, answers, and preferences by dpo, orpo, simpo or kto")
    made.put("train.preference.loss", kind, "edit: records have prompt, chosen and rejected, as TRL's")
    made.put_number("train.preference.beta", "orpo_alpha" if "orpo_alpha" in left else "beta", default=0.1)
    if kind == "simpo":
        made.put_number("train.preference.margin", "simpo_gamma", default=0.5)
    return True


def convert_records(made, has_pairs):
    whole = made.left.pop("train_on_inputs" if made.tool == "axolotl" else "train_on_prompt", False)
    if has_pairs:
        pass  # the answers are learnt
    elif whole or made.left.pop("completion_only_loss", None) is False:
        made.put("data.targets", "all", "prompts are learnt, too")
    elif made.left.pop("mask_history", False):
        made.put("data.targets", "last", "mask_history")
    elif made.tool == "TRL" and not made.left.pop("assistant_only_loss", False):
        made.put("data.targets", "assistant", 'edit: "all" for chats, of which TRL learns all without assistant_only_loss')
    strategy = made.left.pop("excess_length_strategy", "drop" if made.tool == "axolotl" else "truncate")
    if has_pairs:
        made.put("data.too_long", "drop", "a pair has to fit into a row")
    else:
        made.put("data.too_long", "truncate" if strategy == "truncate" else "drop", f"as {made.tool} does")
    name, packs = made.take("packing", made.left.get("stage") == "pt")
    packs = packs or made.left.pop("neat_packing", False)
    made.put("data.packing", "first_fit" if packs else "single", name if packs else f"{name.split()[0]} is not set")


def convert_training(made, evaluates):
    steps = number("max_steps", made.left.pop("max_steps", -1), int)
    name, epochs = made.take("epochs")
    epochs = number(name, epochs)
    if steps > 0:
        made.put("train.steps", steps, "max_steps")
    else:
        edit = "" if epochs == int(epochs) else f"edit: {epochs} epochs; "
        made.put("train.epochs", max(1, int(epochs)), edit + name)
    name, micro = made.take("micro")
    micro = number(name, micro, int)
    count = number("gradient_accumulation_steps", made.left.pop("gradient_accumulation_steps", 1), int)
    made.put("train.batch", micro * count, f"edit: {micro} x {count} gradient_accumulation_steps of one GPU; times its GPUs")
    made.put("train.micro_batch", micro, name)
    made.put_number("train.learning_rate", "learning_rate")
    convert_rate(made)
    made.put_number("train.weight_decay", "weight_decay", default=0.0)
    betas = [made.take("adam_beta1", 0.9), made.take("adam_beta2", 0.999)]
    made.put("train.betas", [number(*beta) for beta in betas], "adam_beta1, adam_beta2")
    made.put_number("train.clip", "max_grad_norm")
    every = number("eval_steps", made.left.get("eval_steps", 0))
    if evaluates and every >= 1:
        made.put("train.eval_every", number("eval_steps", made.left.pop("eval_steps"), int), "eval_steps")


def convert_rate(made):
    name, decay = made.take("decay")
    decay = clean(decay)
    if decay in DECAYS:
        made.put("train.decay", DECAYS[decay], name)
    else:
        made.lacks(name, decay, f"one of {', '.join(DECAYS)}")
    steps = number("warmup_steps", made.left.get("warmup_steps", 0))
    if steps >= 1:
        made.put("train.warmup", number("warmup_steps", made.left.pop("warmup_steps"), int), "warmup_steps")
        return
    name, share = made.take("warmup_ratio", 0)
    if "warmup_steps" in made.left:  # a share in newer versions of transformers
        name, share = made.take("warmup_steps")
    if share := number(name, share):
        made.put("train.warmup", 0, f"edit: {share} of the steps, which strait plan prints; {name}")


def convert_rest(made, file):
    name = pathlib.Path(str(made.left.get("output_dir", ""))).name
    name = re.sub(r"[^A-Za-z0-9._-]", "-", name or pathlib.Path(file).stem).lstrip(".-_")[:100]
    made.put("name", name or "run", "output_dir" if made.left.pop("output_dir", None) else "the file's name")
    made.put_number("seed", "seed", int)
    made.put("pipeline.stages", 1, "edit: processes that the model is split over")
    every = number("save_steps", made.left.get("save_steps", 0))
    if every >= 1:
        made.put("checkpoint.every", number("save_steps", made.left.pop("save_steps"), int), "save_steps")
    keep = number("save_total_limit", made.left.pop("save_total_limit", 0), int)
    if keep > 0:
        made.put("checkpoint.keep", max(2, keep), "save_total_limit")
    optimizer, kind = made.take("optimizer", "adamw_torch")
    if clean(kind) in OPTIMIZERS_OF_8_BITS:
        made.put("train.moments", "int8", optimizer)
    elif clean(kind) not in SAME_OPTIMIZERS:
        made.lacks(optimizer, kind, "AdamW with float32 moments")
    for key in ("stage", "do_train", "eval_strategy"):
        made.left.pop(key, None)
    # What is switched off is no loss.
    rest = {clean(key): value for key, value in made.left.items() if value not in (False, "", "none", [], {})}
    for key in sorted(rest):
        made.lacks(key, rest[key], REASONS.get(key, "strait has nothing like it"))


def tool_of(values):
    if "base_model" in values:
        return "axolotl"
    if "model_name_or_path" in values:
        if values.keys() & {"stage", "finetuning_type", "cutoff_len", "template", "dataset"}:
            return "LLaMA-Factory"
        if values.keys() & {"dataset_name", "datasets", "use_peft", "max_length", "max_seq_length"}:
            return "TRL"
    raise Refusal("it is not a file of axolotl (which has base_model), LLaMA-Factory (model_name_or_path and stage) or "
                  "TRL (model_name_or_path and dataset_name)")


def read(file):
    try:
        import yaml
    except ImportError:
        raise Refusal(f"{sys.executable} lacks the package PyYAML, which reads it; install it there, or set STRAIT_PYTHON "
                      "to a Python that has it") from None
    try:
        with open(file, encoding="utf-8") as source:
            text = source.read(LARGEST + 1)
        values = yaml.safe_load(text) if len(text) <= LARGEST else None
    except OSError as error:
        raise Refusal(error.strerror) from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise Refusal(f"it is not YAML: {clean(' '.join(str(error).split()))}") from None
    if not isinstance(values, dict):
        raise Refusal("it is not a table of keys, of at most 1 MiB")
    return values


def convert(file):
    values = read(file)
    made = Conversion(tool_of(values), values)
    if not isinstance(values[made.names["model"]], str):
        raise Refusal(f"{made.names['model']} is not the name of a model")
    convert_model(made)
    evaluates = convert_data(made)
    convert_records(made, convert_preference(made))
    convert_training(made, evaluates)
    convert_rest(made, file)
    return {"recipe": made.text(pathlib.Path(file).name), "without": made.without}


def main():
    try:
        answer = convert(sys.argv[1])
    except Refusal as refusal:
        answer = {"error": str(refusal)}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
