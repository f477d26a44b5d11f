"""Directories of every family through a run and out again, bit for bit; broken ones get the named error.

Random legal configurations (seeded) in float32, bfloat16 or float16, in one file or in shards. A run of
one step at a learning rate too small to change a value loads and saves them; `strait export` must give
every tensor of the source back, with the source's name, shape, type and bits, and `transformers` must
load it with nothing to complain of.

usage: model_files_test.py   ($STRAIT_BIN: the folder of the programs, by default build/release/bin)
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

SKIPPED = 77

try:
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
except ImportError as error:
    print(f"skipped: {error}; to run it: .venv/bin/pip install transformers")
    sys.exit(SKIPPED)

import random_models

STRAIT = pathlib.Path(os.environ.get("STRAIT_BIN", "build/release/bin")).resolve() / "strait"
VOCABULARY = 61
TEXT_AND_IMAGES = ("qwen3_5", "qwen3_5_moe", "mistral3")
LATENT = ("deepseek_v3", "glm4_moe_lite", "mistral4")
FAMILIES = [
    "gpt2",
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "phi3",
    "gemma2",
    "gemma3_text",
    "ministral3",
    "smollm3",
    "olmo3",
    "granite",
    "qwen3_moe",
    "qwen3_5_text",
    "qwen3_5_moe_text",
    "qwen3_5",
    "gpt_oss",
    "deepseek_v3",
    "glm4_moe_lite",
    "mistral4",
    "mistral3",
    "qwen3_5_moe",
    "mixtral",
    "olmoe",
    "gpt_neox",
    "gptj",
    "opt",
]


def random_config(family, chance):
    heads = chance.choice([2, 3, 6])
    width = chance.choice([4, 6])
    hidden = heads * width
    tied = chance.random() < 0.5
    common = {"vocab_size": VOCABULARY, "tie_word_embeddings": tied}
    if family in ("gpt2", "gptj"):
        sizes = {"n_positions": 32, "n_embd": hidden, "n_layer": 2, "n_head": heads}
        more = {"rotary_dim": chance.choice([2, 4])} if family == "gptj" else {}
        if family == "gptj":
            common["tie_word_embeddings"] = False  # its head has a bias that a tied one would keep
        return {**common, **sizes, **more, "n_inner": chance.choice([None, 20])}
    sizes = {
        "max_position_embeddings": 32,
        "hidden_size": hidden,
        "num_hidden_layers": 2,
        "num_attention_heads": heads,
    }
    if family == "opt":
        narrow = chance.random() < 0.5
        return {
            **common,
            **sizes,
            "ffn_dim": 20,
            "word_embed_proj_dim": 8 if narrow else hidden,
            "do_layer_norm_before": not narrow,
            "enable_bias": chance.random() < 0.5,
        }
    sizes["intermediate_size"] = chance.choice([20, 28])
    if family == "gpt_neox":
        return {**common, **sizes, "rotary_pct": 0.5 if width == 4 else 1.0}
    key_heads = chance.choice([count for count in (1, 2, 3, 6) if heads % count == 0])
    sizes |= {"num_key_value_heads": key_heads, "pad_token_id": chance.choice([None, 3])}
    if family == "mistral3":
        vision = {"model_type": "pixtral", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
                  "num_attention_heads": 2, "head_dim": 4, "patch_size": 2, "image_size": 8}
        text = chance.choice(["mistral4", "ministral3"])
        return {"text_config": random_config(text, chance) | {"model_type": text}, "vision_config": vision,
                "tie_word_embeddings": tied}
    if family in TEXT_AND_IMAGES:
        vision = {"depth": 1, "hidden_size": 8, "intermediate_size": 8, "num_heads": 2, "patch_size": 2,
                  "out_hidden_size": 24, "num_position_embeddings": 4}
        return {"text_config": random_config(family + "_text", chance) | {"tie_word_embeddings": tied},
                "vision_config": vision, "tie_word_embeddings": tied}
    if "qwen3_5" in family:
        sizes |= {"layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 1,
                  "linear_num_value_heads": 2, "linear_key_head_dim": 4, "linear_value_head_dim": 6}
        sizes["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
    if family in ("qwen3_moe", "mixtral", "olmoe", "qwen3_5_moe_text", "gpt_oss"):
        count = "num_local_experts" if family in ("mixtral", "gpt_oss") else "num_experts"
        sizes |= {count: 3, "num_experts_per_tok": 2}
    if family == "qwen3_moe":
        sizes |= {"moe_intermediate_size": 6, "mlp_only_layers": chance.choice([[], [0]])}
    if family == "qwen3_5_moe_text":
        sizes |= {"moe_intermediate_size": 6, "shared_expert_intermediate_size": 4}
    if family in LATENT:
        sizes |= {"num_key_value_heads": heads, "q_lora_rank": chance.choice([None, 6]), "kv_lora_rank": 8,
                  "qk_nope_head_dim": 4, "qk_rope_head_dim": chance.choice([2, 4]), "v_head_dim": 6,
                  "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 6}
        sizes |= {"first_k_dense_replace": 1, "n_group": 2, "topk_group": 1} if family != "glm4_moe_lite" else {}
    elif family not in ("qwen2", "phi3", "olmoe", "smollm3", "olmo3", "granite"):
        sizes["head_dim"] = chance.choice([4, 8])
    if family in ("llama", "qwen3", "gemma2", "gemma3_text"):
        sizes["attention_bias"] = chance.random() < 0.5
    return {**common, **sizes}


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
    rows = torch.randint(0, VOCABULARY, (4, 16)).to(torch.int32)
    save_file({"input_ids": rows}, folder / "rows.safetensors")
    (folder / "run.toml").write_text(
        """
        name = "run"
        [model]
        path = "source"
        weights = "load"
        [data]
        train = "rows.safetensors"
        row = 16
        [pipeline]
        stages = 2
        threads = 1
        [train]
        steps = 1
        batch = 2
        micro_batch = 1
        learning_rate = 1e-30
        """
    )


def strait(folder, *words):
    return subprocess.run([STRAIT, *words], cwd=folder, capture_output=True, text=True)


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
    with_tensors(
        lambda tensors: tensors.update({"lm_head.weight": tensors["model.embed_tokens.weight"] * 1.5})
    )(source)
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
    "a missing tensor": (
        with_tensors(lambda tensors: tensors.pop("model.norm.weight")),
        ["missing (1): model.norm.weight"],
    ),
    "a surplus tensor": (
        with_tensors(lambda tensors: tensors.update({"model.extra": torch.ones(2)})),
        ["surplus (1): model.extra"],
    ),
    "a wrong shape": (with_tensors(misshape), ["misshapen (1): model.norm.weight is ["]),
    "a value that is not finite": (with_tensors(set_nan), ["model.norm.weight", "not finite"]),
    "a head that is not the table it is tied to": (
        untie,
        ["lm_head.weight is another matrix than model.embed_tokens.weight", "tie_word_embeddings"],
    ),
    "an index that leaves the directory": (escape, ["../elsewhere.safetensors", "inside the directory"]),
    "an unknown rope type": (
        set_field("rope_scaling", {"rope_type": "spiral", "factor": 2.0}),
        ["rope_scaling.rope_type", "spiral"],
    ),
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
    for number, family in enumerate(FAMILIES * 2):
        there_and_back(family, number)
    four_bits_leave_as_bfloat16()
    for name in BROKEN:
        refused(name)


if __name__ == "__main__":
    main()
