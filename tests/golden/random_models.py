"""Tiny random models of transformers, and their files as published models have them. Not a test itself."""

import torch
import transformers
from safetensors.torch import save_file

TABLES = {"gpt2": "transformer.wte.weight", "llama": "model.embed_tokens.weight"}


def random_model(family, options, seed):
    """Of a family by its transformers name; options of its configuration."""
    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(family, **options)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    model = model.float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0, 0.2)
            # The weights of norms are near one, but those of Gemma, which adds the one itself.
            if parameter.dim() == 1 and name.endswith("weight") and "gemma" not in family:
                parameter.add_(1)
    return model


def save_model(model, directory, bare_names=False, only_head=False, old_buffers=None):
    """Returns the names of the tensors. Of a tied weight the file has the table, or only the head.
    bare_names: without the prefix that the base model has in one with a head."""
    directory.mkdir(exist_ok=True)
    model.config.save_pretrained(directory)
    tensors = {name: value.clone() for name, value in model.state_dict().items()}
    family, head = model.config.model_type, "lm_head."
    if family == "gpt_neox":
        head = "embed_out."
        tensors = {name.replace("lm_head.", head): value for name, value in tensors.items()}
    if model.config.tie_word_embeddings:
        del tensors[TABLES[family] if only_head else head + "weight"]
    if bare_names:
        prefix = model.base_model_prefix + "."
        tensors = {name.removeprefix(prefix): value for name, value in tensors.items()}
    tensors |= old_buffers or {}
    save_file(tensors, directory / "model.safetensors")
    return set(tensors)
