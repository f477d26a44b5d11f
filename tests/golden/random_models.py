"""Tiny random models of transformers, and their files as published models have them. Not a test itself: one that reads
this is skipped where there is no torch or transformers."""

import sys

SKIPPED = 77

try:
    import torch
    import transformers
    from safetensors.torch import save_file
except ImportError as error:
    print(f"skipped: {error}; to run it: .venv/bin/pip install transformers")
    sys.exit(SKIPPED)

from transformers.integrations.mxfp4 import FP4_VALUES, convert_moe_packed_tensors

TABLES = {"gpt2": "transformer.wte.weight", "llama": "model.embed_tokens.weight"}
# transformers has a tensor for all experts of a layer, the files of these families one for each.
EXPERTS = {
    "qwen3_moe": ("mlp", "gate_proj", "up_proj", "down_proj"),
    "qwen3_5_moe_text": ("mlp", "gate_proj", "up_proj", "down_proj"),
    "olmoe": ("mlp", "gate_proj", "up_proj", "down_proj"), "mixtral": ("block_sparse_moe", "w1", "w3", "w2"),
    "deepseek_v3": ("mlp", "gate_proj", "up_proj", "down_proj"),
    "glm4_moe_lite": ("mlp", "gate_proj", "up_proj", "down_proj"),
}
# transformers has it as the text part of mistral3 only.
transformers.AutoModelForCausalLM.register(transformers.Mistral4Config, transformers.Mistral4ForCausalLM, exist_ok=True)
# transformers' loop over experts, which takes float64, in place of a product that does not.
LOOP = {"attn_implementation": "eager", "experts_implementation": "eager"}


def random_model(family, options, seed):
    """Of a family by its transformers name; options of its configuration."""
    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(family, **options)
    model = transformers.AutoModelForCausalLM.from_config(config, **LOOP)
    model = model.float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0, 0.2)
            # The weights of norms are near one, but those of families that add the one themselves.
            adds_one = "gemma" in family or "qwen3_5" in family and not name.endswith("linear_attn.norm.weight")
            if parameter.dim() == 1 and name.endswith("weight") and not adds_one:
                parameter.add_(1)
        for bias in choice_biases(model).values():
            bias.normal_(0, 0.2)
    return model


def choice_biases(model):
    """What routers add to their scores to choose by: no parameters, and without gradient."""
    return {name: bias for name, bias in model.named_buffers() if name.endswith("e_score_correction_bias")}


def published(family, tensors):
    """Tensors of the library's model under the names of the family's files, experts one by one."""
    if family == "gpt_neox":
        return {name.replace("lm_head.", "embed_out."): value for name, value in tensors.items()}
    if family not in EXPERTS:
        return dict(tensors)
    module, gate, up, down = EXPERTS[family]
    named = {}
    for name, value in tensors.items():
        block, of_experts, part = name.replace(".mlp.", f".{module}.").partition(".experts.")
        if part not in ("gate_up_proj", "down_proj"):
            named[block + of_experts + part] = value
            continue
        for number, matrix in enumerate(value):
            parts = {down: matrix}
            if part == "gate_up_proj":
                parts = dict(zip((gate, up), matrix.chunk(2)))
            for own, rows in parts.items():
                named[f"{block}.experts.{number}.{own}.weight"] = rows.contiguous()
    return named


def parts_of_experts(tensors):
    """Tensors that files have for all experts of a block, under the names that ours have."""
    named = {}
    for name, value in tensors.items():
        block, found, part = name.partition(".mlp.experts.")
        if not found or part[0].isdigit():
            named[name] = value
            continue
        kind = "bias" if part.endswith("_bias") else "weight"
        for number, own in enumerate(value):
            named[f"{block}.mlp.experts.{number}.{part.removesuffix('_bias')}.{kind}"] = own
    return named


class SingleExperts(torch.nn.Module):
    """Experts of a block with a module for each matrix, as transformers had them before version 5."""

    def __init__(self, fused):
        super().__init__()
        self.act_fn, self.count = fused.act_fn, len(fused.down_proj)
        for number, (gate_up, down) in enumerate(zip(fused.gate_up_proj.detach(), fused.down_proj.detach())):
            expert = torch.nn.Module()
            for name, matrix in zip(("gate_proj", "up_proj", "down_proj"), (*gate_up.chunk(2), down)):
                linear = torch.nn.Linear(matrix.shape[1], matrix.shape[0], bias=False)
                linear.weight.data = matrix.clone()
                setattr(expert, name, linear)
            self.add_module(str(number), expert)

    def forward(self, hidden, chosen, weights):
        sums = torch.zeros_like(hidden)
        for number in range(self.count):
            expert, (token, way) = getattr(self, str(number)), torch.where(chosen == number)
            rows = hidden[token]
            result = expert.down_proj(self.act_fn(expert.gate_proj(rows)) * expert.up_proj(rows))
            sums = sums.index_add(0, token, result * weights[token, way, None])
        return sums


def with_single_experts(model):
    for layer in model.model.layers:
        if hasattr(layer.mlp, "experts"):
            layer.mlp.experts = SingleExperts(layer.mlp.experts)
    return model


def in_four_bits(model, tensors):
    """The experts of these tensors as MXFP4 files have them. The model gets the values that they stand for."""
    packed = {}
    for name, value in tensors.items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            packed[name] = value
            continue
        groups = value.transpose(1, 2).unflatten(2, (-1, 32))
        exponents = groups.abs().amax(3).log2().floor() - 2
        levels = torch.tensor(FP4_VALUES)
        codes = (groups / exponents.exp2()[..., None])[..., None].sub(levels).abs().argmin(-1).to(torch.uint8)
        blocks, scales = codes[..., ::2] | codes[..., 1::2] << 4, (exponents + 127).to(torch.uint8)
        packed |= {name + "_blocks": blocks.contiguous(), name + "_scales": scales.contiguous()}
        exact = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
        model.get_parameter(name).data = exact.to(value.dtype)
    return packed


def save_model(model, directory, bare_names=False, only_head=False, old_buffers=None):
    """Returns the names of the tensors. Of a tied weight the file has the table, or only the head.
    bare_names: without the prefix that the base model has in one with a head."""
    directory.mkdir(exist_ok=True)
    model.config.save_pretrained(directory)
    tensors = {name: value.clone() for name, value in model.state_dict().items()}
    family = model.config.model_type
    head = "embed_out." if family == "gpt_neox" else "lm_head."
    tensors = published(family, tensors)
    if model.config.tie_word_embeddings:
        del tensors[TABLES[family] if only_head else head + "weight"]
    if bare_names:
        prefix = model.base_model_prefix + "."
        tensors = {name.removeprefix(prefix): value for name, value in tensors.items()}
    tensors |= old_buffers or {}
    save_file(tensors, directory / "model.safetensors")
    return set(tensors)
