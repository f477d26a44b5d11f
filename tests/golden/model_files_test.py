"""Directories of every family through a run and out again, bit for bit; broken ones get the named error.

Configurations drawn (seeded) among the cases of families_test.py, in float32, bfloat16 or float16, in one file or in
shards. A run of one step at a learning rate too small to change a value loads and saves them; `strait export` must give
every tensor of the source back, with the source's name, shape, type and bits, and `transformers` must load it with
nothing to complain of. One of each family; two with STRAIT_CAMPAIGNS=1 (`./strait test --all`).

usage: model_files_test.py   ($STRAIT_BIN: the folder of the programs, by default build/release/bin)
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import training_test as training

import torch
import transformers
from safetensors.torch import load_file, save_file

import families_test as families
import random_models

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

from strait import load  # noqa: E402: found by the line above

TEXT_AND_IMAGES = ("qwen3_5", "qwen3_5_moe", "mistral3")
OF_FILES = ("file", "documents", "bare_names", "only_head", "fused", "mxfp4")  # no options of a configuration
FAMILIES = [*families.BASES, *TEXT_AND_IMAGES]


def random_config(family, chance):
    """The family's model in families_test.py, with the options of one of its cases there."""
    if family in TEXT_AND_IMAGES:
        text, vision = family + "_text", {
            "depth": 1, "hidden_size": 8, "intermediate_size": 8, "num_heads": 2, "patch_size": 2, "out_hidden_size": 24,
            "num_position_embeddings": 4}
        if family == "mistral3":
            text, vision = chance.choice(["mistral4", "ministral3"]), {
                "model_type": "pixtral", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
                "num_attention_heads": 2, "head_dim": 4, "patch_size": 2, "image_size": 8}
        tied = {"tie_word_embeddings": chance.random() < 0.5}
        return {"text_config": random_config(text, chance) | tied | {"model_type": text}, "vision_config": vision, **tied}
    options = chance.choice([options for one, _, options in families.CASES if one == family])
    return families.BASES[family] | {name: value for name, value in options.items() if name not in OF_FILES}


def write_source(folder, family, chance, shards):
    kind = chance.choice([torch.float32, torch.bfloat16, torch.float16])
    torch.manual_seed(chance.randrange(1 << 30))
    config = transformers.AutoConfig.for_model(family, **random_config(family, chance))
    kind_of_model = transformers.AutoModelForImageTextToText if family in TEXT_AND_IMAGES else transformers.AutoModelForCausalLM
    model = kind_of_model.from_config(config)
    with torch.no_grad():
        for parameter in [*model.parameters(), *random_models.choice_biases(model).values()]:
            parameter.normal_(0, 0.2)
    size = "3KB" if shards else "1GB"
    model.to(kind).save_pretrained(folder / "source", max_shard_size=size)
    (folder / "source/tokenizer_config.json").write_text('{"chat_template": "x"}')
    (folder / "source/chat_template.jinja").write_text("{{ messages }}")


def write_recipe(folder):
    rows = torch.randint(0, families.VOCABULARY, (4, 16)).to(torch.int32)
    save_file({"input_ids": rows}, folder / "rows.safetensors")
    training.write_recipe(folder, "run", {
        "data.train": "rows.safetensors", "data.row": 16, "pipeline.stages": 2, "train.steps": 1, "train.batch": 2,
        "train.micro_batch": 1, "train.learning_rate": 1e-30})


def strait(folder, *words):
    return subprocess.run([training.STRAIT, *words], cwd=folder, capture_output=True, text=True)


def tensors_of(directory):
    tensors = {}
    for file in sorted(directory.glob("*.safetensors")):
        tensors.update(load_file(file))
    return tensors


def same_bits(left, right):
    return left.dtype == right.dtype and torch.equal(
        left.contiguous().view(torch.uint8), right.contiguous().view(torch.uint8)
    )


def there_and_back(family, seed):
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as name_of_folder:
        folder = pathlib.Path(name_of_folder)
        shards = chance.random() < 0.5
        write_source(folder, family, chance, shards)
        write_recipe(folder)
        done = strait(folder, "run", "run.toml", "--json")
        assert done.returncode == 0, f"{family}, seed {seed}: {done.stdout}{done.stderr}"
        limit = ["--shard-gb", "0.000004"] if shards else []
        done = strait(folder, "export", "runs/run", "out", *limit)
        assert done.returncode == 0, f"{family}, seed {seed}: {done.stderr}"
        before, after = tensors_of(folder / "source"), tensors_of(folder / "out")
        assert set(before) == set(after), f"{family}, seed {seed}: {set(before) ^ set(after)}"
        apart = [name for name in before if not same_bits(before[name], after[name])]
        assert not apart, f"{family}, seed {seed}: {apart} changed"
        for name in ("config.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
            if (folder / "source" / name).exists():
                same = (folder / "source" / name).read_bytes() == (folder / "out" / name).read_bytes()
                assert same, f"{family}, seed {seed}: {name} changed"
        card = (folder / "out/README.md").read_text()
        assert "steps | 1 of 1" in card and "learning_rate" in card, card
        if not shards:
            assert (folder / "out/model.safetensors").exists()
        loaders = [transformers.AutoModelForCausalLM] if family != "mistral3" else []
        if family in TEXT_AND_IMAGES:
            loaders.append(transformers.AutoModelForImageTextToText)
        for loader in loaders:
            _, report = loader.from_pretrained(folder / "out", output_loading_info=True)
            assert not any(report.values()), f"{family}, seed {seed}: {report}"
        if family == "mistral3":
            loaded = load(folder / "runs/run")
            assert isinstance(loaded, transformers.Mistral3ForConditionalGeneration), type(loaded)
        other = strait(folder, "export", "runs/run", "narrow", "--dtype", "bfloat16")
        assert other.returncode == 0, other.stderr
        kinds = {value.dtype for value in tensors_of(folder / "narrow").values()}
        assert kinds == {torch.bfloat16}, kinds
        config = json.loads((folder / "narrow/config.json").read_text())
        assert config.get("dtype", config.get("torch_dtype")) == "bfloat16", config
    print(f"ok     {family}, seed {seed}{', in shards' if shards else ''}", flush=True)


def four_bits_leave_as_bfloat16():
    """Experts in MXFP4 are read as the values that they stand for, and leave so."""
    with tempfile.TemporaryDirectory() as name_of_folder:
        folder = pathlib.Path(name_of_folder)
        options = random_config("gpt_oss", random.Random(5)) | {"hidden_size": 64, "intermediate_size": 32, "head_dim": 8}
        model = random_models.random_model("gpt_oss", options, 5).bfloat16()
        model.save_pretrained(folder / "source")
        tensors = {name: value.clone() for name, value in model.state_dict().items()}
        if model.config.tie_word_embeddings:
            del tensors["lm_head.weight"]
        save_file(random_models.in_four_bits(model, tensors), folder / "source/model.safetensors", metadata={"format": "pt"})
        set_field("quantization_config", {"quant_method": "mxfp4"})(folder / "source")
        write_recipe(folder)
        for words in (("run", "run.toml"), ("export", "runs/run", "out")):
            done = strait(folder, *words)
            assert done.returncode == 0, done.stdout + done.stderr
        after = load_file(folder / "out/model.safetensors")
        for name, value in after.items():
            apart = (value.float() - model.get_parameter(name).data.float()).abs().max().item()
            assert value.dtype == torch.bfloat16 and apart < 1e-20, f"{name} changed"  # a zero by the step
        _, report = transformers.AutoModelForCausalLM.from_pretrained(folder / "out", output_loading_info=True)
        assert not any(report.values()), report
    print("ok     experts of four bits", flush=True)


def truncate(source):
    file = source / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-5])


def with_tensors(change):
    def broken(source):
        tensors = load_file(source / "model.safetensors")
        change(tensors)
        save_file(tensors, source / "model.safetensors", metadata={"format": "pt"})

    return broken


def set_nan(tensors):
    tensors["model.norm.weight"][1] = float("nan")


def misshape(tensors):
    tensors["model.norm.weight"] = tensors["model.norm.weight"][:-1].clone()


def untie(source):
    """What transformers since 5 calls a wrong config, and loads as a model that is not tied."""
    with_tensors(lambda tensors: tensors.update({"lm_head.weight": tensors["model.embed_tokens.weight"] * 1.5}))(source)
    set_field("tie_word_embeddings", True)(source)


def escape(source):
    tensors = load_file(source / "model.safetensors")
    (source / "model.safetensors").unlink()
    index = {"weight_map": {name: "../elsewhere.safetensors" for name in tensors}}
    (source / "model.safetensors.index.json").write_text(json.dumps(index))


def set_field(name, value):
    def broken(source):
        config = json.loads((source / "config.json").read_text())
        config[name] = value
        (source / "config.json").write_text(json.dumps(config))

    return broken


BROKEN = {
    "a truncated file": (truncate, ["model.safetensors"]),
    "a missing tensor": (with_tensors(lambda tensors: tensors.pop("model.norm.weight")),
                         ["missing (1): model.norm.weight"]),
    "a surplus tensor": (with_tensors(lambda tensors: tensors.update({"model.extra": torch.ones(2)})),
                         ["surplus (1): model.extra"]),
    "a wrong shape": (with_tensors(misshape), ["misshapen (1): model.norm.weight is ["]),
    "a value that is not finite": (with_tensors(set_nan), ["model.norm.weight", "not finite"]),
    "a head that is not the table it is tied to": (
        untie, ["lm_head.weight is another matrix than model.embed_tokens.weight", "tie_word_embeddings"],
    ),
    "an index that leaves the directory": (escape, ["../elsewhere.safetensors", "inside the directory"]),
    "an unknown rope type": (set_field("rope_scaling", {"rope_type": "spiral", "factor": 2.0}),
                             ["rope_scaling.rope_type", "spiral"]),
    "an unknown activation": (set_field("hidden_act", "mish"), ["hidden_act", "mish"]),
    "a quantised checkpoint": (set_field("quantization_config", {"bits": 4}), ["quantization_config"]),
    "an unknown family": (set_field("model_type", "gpt9"), ["model_type", "gpt9", "llama"]),
}


def refused(name):
    break_source, expected = BROKEN[name]
    with tempfile.TemporaryDirectory() as name_of_folder:
        folder = pathlib.Path(name_of_folder)
        write_source(folder, "llama", random.Random(3), shards=False)
        write_recipe(folder)
        break_source(folder / "source")
        done = strait(folder, "run", "run.toml")
        missing = [text for text in expected if text not in done.stderr + done.stdout]
        assert done.returncode == 10 and not missing, f"{name}: {done.returncode}, {missing}, {done.stderr}"
    print(f"ok     refused: {name}", flush=True)


def main():
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    os.environ["STRAIT_BIN"] = str(training.STRAIT.parent)
    for number, family in enumerate(FAMILIES * (2 if os.environ.get("STRAIT_CAMPAIGNS") else 1)):
        there_and_back(family, number)
    four_bits_leave_as_bfloat16()
    for name in BROKEN:
        refused(name)


if __name__ == "__main__":
    main()
