"""Every model family against that of the `transformers` package, on tiny random models.

Logits, masked loss, global gradient norm and every single gradient must agree within tolerances
that separate rounding from mistakes. The reference runs in float64, ours in float32. The models are
built to catch mistakes: odd head counts, fewer key heads than heads, heads whose width is not
hidden / heads, windows shorter than documents, documents shorter than rows, scaled rotations, old
and new spellings of config.json, fields left out. At the end config.json lies about one convention
at a time, and each must be detected.

usage: families_test.py [MODEL_PROBE]   (default: model_probe in $STRAIT_BUILD/bin)
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import random_models

import torch
import transformers
from safetensors.torch import load_file, save_file

LOGITS = 1e-4  # absolute
LOSS = 1e-5  # relative
GRADIENT_NORM = 5e-5  # relative
GRADIENT = 1e-4  # of a tensor's difference, relative to the largest norm of a gradient

ROWS, LENGTH, VOCABULARY, POSITIONS = 3, 20, 97, 32
PACKED = [[7, 13, 0], [20, 0, 0], [4, 1, 9]]

# What every model of a family is made of, where a case says nothing else.
LLAMA = {
    "vocab_size": VOCABULARY, "max_position_embeddings": POSITIONS, "hidden_size": 30, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 44, "pad_token_id": None,
    "bos_token_id": 0, "eos_token_id": 0,
}
YARN = {
    "rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 4.0,
    "beta_slow": 0.5,
}
# Ministral 3's, with a step every five positions.
GROWING = YARN | {"original_max_position_embeddings": 5, "llama_4_scaling_beta": 0.4}
RECURRENT = LLAMA | {
    "num_hidden_layers": 4, "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 6,
    "linear_key_head_dim": 8, "linear_value_head_dim": 6,
}
HALF = {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}
# Which some families have by mistake: their classes in the library do not read it.
MIXED = ["full_attention", "sliding_attention", "full_attention"]
LATE = ["full_attention", "linear_attention", "linear_attention", "full_attention"]
LATENT = {name: value for name, value in LLAMA.items() if name != "head_dim"} | {
    "num_key_value_heads": 6, "q_lora_rank": 10, "kv_lora_rank": 9, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4,
    "v_head_dim": 5, "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 14,
}
BASES = {
    "deepseek_v3": LATENT | {"n_group": 4, "topk_group": 2, "first_k_dense_replace": 1},
    "glm4_moe_lite": LATENT | {"v_head_dim": 13},
    "mistral4": LATENT | {"rope_parameters": GROWING | {"mscale": 1.0, "mscale_all_dim": 1.0}},
    "gpt_oss": LLAMA
    | {"num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 6, "swiglu_limit": 0.7,
       "rope_parameters": YARN | {"truncate": False}},
    "qwen3_5_text": RECURRENT,
    "qwen3_5_moe_text": RECURRENT
    | {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 14, "shared_expert_intermediate_size": 10},
    "gpt2": {"vocab_size": VOCABULARY, "n_positions": POSITIONS, "n_embd": 32, "n_layer": 3, "n_head": 4},
    "llama": LLAMA,
    "mistral": LLAMA,
    "qwen2": {name: value for name, value in LLAMA.items() if name != "head_dim"}
    | {"hidden_size": 36},
    "qwen3": LLAMA,
    "phi3": {name: value for name, value in LLAMA.items() if name != "head_dim"}
    | {"hidden_size": 36},
    "gemma2": LLAMA | {"query_pre_attn_scalar": 20},
    "gemma3_text": LLAMA | {"query_pre_attn_scalar": 20},
    "ministral3": LLAMA | {"rope_parameters": GROWING},
    "smollm3": LLAMA | {"num_hidden_layers": 5},
    "olmo3": {name: value for name, value in LLAMA.items() if name != "head_dim"}
    | {"hidden_size": 36, "num_hidden_layers": 5, "sliding_window": 6},
    "granite": {name: value for name, value in LLAMA.items() if name != "head_dim"}
    | {"hidden_size": 36, "embedding_multiplier": 3.0, "attention_multiplier": 0.3, "residual_multiplier": 0.4,
       "logits_scaling": 2.5},
    "qwen3_moe": LLAMA | {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 14},
    "mixtral": LLAMA | {"num_local_experts": 5, "num_experts_per_tok": 2},
    "olmoe": {name: value for name, value in LLAMA.items() if name != "head_dim"}
    | {"hidden_size": 36, "num_experts": 5, "num_experts_per_tok": 2},
    "gpt_neox": {
        "vocab_size": VOCABULARY, "max_position_embeddings": POSITIONS, "hidden_size": 36, "num_hidden_layers": 3,
        "num_attention_heads": 3, "intermediate_size": 50, "rotary_pct": 0.5,
    },
    "gptj": {
        "vocab_size": VOCABULARY, "n_positions": POSITIONS, "n_embd": 36, "n_layer": 3, "n_head": 3, "rotary_dim": 4,
    },
    "opt": {
        "vocab_size": VOCABULARY, "max_position_embeddings": POSITIONS, "hidden_size": 36, "word_embed_proj_dim": 36,
        "num_hidden_layers": 3, "num_attention_heads": 3, "ffn_dim": 50,
    },
}

LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
LONG = {"rope_type": "longrope", "rope_theta": 500.0, "short_factor": [1.0, 1.5], "long_factor": [2.0, 3.0]}

# Options of the transformers configuration; "file" changes config.json behind its back, in a way
# that must mean the same.
CASES = [
    ("gpt2", "tied, tanh gelu", {}),
    ("gpt2", "untied", {"tie_word_embeddings": False}),
    ("gpt2", "exact gelu", {"activation_function": "gelu"}),
    ("gpt2", "relu", {"activation_function": "relu"}),
    ("gpt2", "other name of tanh gelu", {"activation_function": "gelu_pytorch_tanh"}),
    ("gpt2", "its oldest name", {"activation_function": "gelu_fast"}),
    ("gpt2", "scaled by inverse layer", {"scale_attn_by_inverse_layer_idx": True}),
    ("gpt2", "unscaled attention", {"scale_attn_weights": False}),
    ("gpt2", "epsilon and inner width", {"layer_norm_epsilon": 1e-3, "n_inner": 50}),
    ("gpt2", "names without prefix, old buffers", {"bare_names": True}),
    ("gpt2", "only the head of a tied weight", {"only_head": True}),
    ("gpt2", "packed documents", {"documents": PACKED}),
    ("llama", "two key heads, untied", {}),
    ("llama", "tied, packed", {"tie_word_embeddings": True, "documents": PACKED}),
    ("llama", "one key head, biases", {"num_key_value_heads": 1, "attention_bias": True, "mlp_bias": True}),
    ("llama", "padding row", {"pad_token_id": 5}),
    ("llama", "old spelling", {"rope_parameters": {"rope_theta": 77.0}, "file": "old"}),
    ("llama", "llama3, new spelling", {"rope_parameters": LLAMA3}),
    ("llama", "llama3, old spelling, packed", {"rope_parameters": LLAMA3, "file": "old", "documents": PACKED}),
    ("llama", "linear", {"rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 1e4}}),
    ("llama", "dynamic within its positions", {"rope_parameters": {"rope_type": "dynamic", "factor": 3.0, "rope_theta": 1e4}}),
    ("llama", "yarn", {"rope_parameters": YARN}),
    ("llama", "yarn, given attention factor", {"rope_parameters": YARN | {"attention_factor": 1.3}}),
    ("llama", "yarn, mscale", {"rope_parameters": YARN | {"mscale": 1.2, "mscale_all_dim": 0.7}}),
    ("llama", "absent head_dim and key heads", {"hidden_size": 24, "head_dim": 4, "num_key_value_heads": 6, "file": "absent"}),
    ("llama", "names without prefix, old buffers", {"bare_names": True}),
    ("llama", "only the head of a tied weight", {"tie_word_embeddings": True, "only_head": True}),
    ("mistral", "window", {"sliding_window": 6}),
    ("mistral", "window of all blocks, packed", {"sliding_window": 6, "layer_types": MIXED, "documents": PACKED}),
    ("mistral", "window of null", {"sliding_window": None}),
    ("qwen2", "a window that is off", {"tie_word_embeddings": True, "file": "window that is off"}),
    ("qwen2", "windows from the second layer on", {"sliding_window": 5, "use_sliding_window": True, "max_window_layers": 1}),
    ("qwen2", "the same without layer_types", {"sliding_window": 5, "use_sliding_window": True, "max_window_layers": 1, "file": "no layer_types", "documents": PACKED}),
    ("qwen3", "tied", {"tie_word_embeddings": True}),
    ("qwen3", "biases, packed", {"attention_bias": True, "documents": PACKED}),
    ("phi3", "fused matrices", {}),
    ("phi3", "part of heads rotated, window of all blocks", {"hidden_size": 48, "sliding_window": 7, "layer_types": MIXED, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}),
    ("phi3", "short rows of longrope", {"hidden_size": 24, "original_max_position_embeddings": 24, "rope_parameters": LONG}),
    ("phi3", "the same by a former name", {"hidden_size": 24, "original_max_position_embeddings": 24, "rope_parameters": LONG, "file": "longrope as yarn"}),
    ("gemma2", "windows in even layers", {"sliding_window": 6}),
    ("gemma2", "small caps, packed", {"sliding_window": 6, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0, "documents": PACKED}),
    ("gemma2", "no caps, untied", {"attn_logit_softcapping": None, "final_logit_softcapping": None, "tie_word_embeddings": False}),
    ("gemma2", "the same without layer_types", {"sliding_window": 6, "file": "no layer_types"}),
    ("gemma3_text", "windows and two angles", {"num_hidden_layers": 7, "sliding_window": 6}),
    ("gemma3_text", "yarn, truncated whatever is inside", {"num_hidden_layers": 7, "rope_parameters": {"full_attention": YARN | {"truncate": False}, "sliding_attention": {"rope_type": "default", "rope_theta": 500.0}}}),
    ("gemma3_text", "old spelling, packed", {"num_hidden_layers": 7, "sliding_window": 6, "file": "old gemma3", "documents": PACKED}),
    ("qwen3_moe", "weights that do not add up to one", {}),
    ("qwen3_moe", "weights that do, packed", {"norm_topk_prob": True, "documents": PACKED}),
    ("qwen3_moe", "three experts, biases, tied", {"num_experts_per_tok": 3, "attention_bias": True, "tie_word_embeddings": True}),
    ("qwen3_moe", "every second block sparse, and not the last", {"num_hidden_layers": 6, "decoder_sparse_step": 2, "mlp_only_layers": [5]}),
    ("qwen3_moe", "window of all blocks, old name of the number", {"use_sliding_window": True, "sliding_window": 6, "layer_types": MIXED, "file": "num_experts"}),
    ("qwen3_moe", "experts of a block in one tensor", {"fused": True, "mlp_only_layers": [1]}),
    ("qwen3_5_text", "three of four blocks recurrent", {}),
    ("qwen3_5_text", "packed, other blocks, two taps", {"layer_types": LATE, "linear_conv_kernel_dim": 2, "documents": PACKED}),
    ("qwen3_5_text", "tied, biases, half of each head rotated", {"tie_word_embeddings": True, "attention_bias": True, "rope_parameters": HALF}),
    ("qwen3_5_text", "absent layer_types and interval", {"file": "interval", "layer_types": ["linear_attention", "full_attention"] * 2}),
    ("qwen3_5_moe_text", "a shared expert", {}),
    ("qwen3_5_moe_text", "packed, experts of a block in one tensor", {"fused": True, "documents": PACKED}),
    ("gpt_oss", "sinks, windows in every second block", {}),
    ("gpt_oss", "packed, no biases of attention, windows elsewhere", {"attention_bias": False, "documents": PACKED, "layer_types": ["full_attention", "sliding_attention", "full_attention"]}),
    ("gpt_oss", "three experts, another slope, tied", {"num_experts_per_tok": 3, "swiglu_alpha": 1.1, "swiglu_limit": 7.0, "tie_word_embeddings": True, "file": "no layer_types"}),
    ("gpt_oss", "experts of four bits", {"hidden_size": 64, "intermediate_size": 32, "mxfp4": True}),
    ("mixtral", "no window", {}),
    ("mixtral", "window of all blocks, packed", {"sliding_window": 6, "layer_types": MIXED, "documents": PACKED}),
    ("olmoe", "norms over all heads", {}),
    ("olmoe", "clipped, normalised, packed", {"clip_qkv": 1.5, "norm_topk_prob": True, "documents": PACKED}),
    ("ministral3", "queries that grow", {}),
    ("ministral3", "window of all blocks, packed", {"sliding_window": 6, "layer_types": MIXED, "documents": PACKED}),
    ("smollm3", "every fourth block not rotated", {}),
    ("smollm3", "others not rotated, windows there, packed", {"no_rope_layers": [1, 0, 0, 1, 1], "use_sliding_window": True, "sliding_window": 6, "documents": PACKED}),
    ("olmo3", "windows in three of four blocks", {}),
    ("olmo3", "scaled angles without a window, packed", {"rope_parameters": {"full_attention": YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 500.0}}, "documents": PACKED}),
    ("olmo3", "old spelling, packed", {"rope_parameters": {"full_attention": YARN | {"rope_theta": 700.0}, "sliding_attention": {"rope_type": "default", "rope_theta": 5e5}}, "sliding_window": 6, "file": "old olmo3", "documents": PACKED}),
    ("smollm3", "windows of layer_types alone, packed", {"layer_types": ["sliding_attention", "full_attention"] * 2 + ["full_attention"], "sliding_window": 6, "documents": PACKED}),
    ("granite", "four factors", {}),
    ("granite", "tied, biases, packed", {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True, "documents": PACKED}),
    ("deepseek_v3", "groups of experts", {}),
    ("deepseek_v3", "yarn of scores, two shared experts, packed", {"rope_parameters": YARN | {"mscale": 1.2, "mscale_all_dim": 0.7}, "n_shared_experts": 2, "documents": PACKED}),
    ("deepseek_v3", "null is off", {"norm_topk_prob": False, "rope_interleave": False, "file": "null"}),
    ("deepseek_v3", "yarn, old spelling", {"rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}, "file": "old"}),
    ("deepseek_v3", "one matrix of queries, halves, no groups, biases", {"q_lora_rank": None, "rope_interleave": False, "n_group": 1, "topk_group": 1, "attention_bias": True, "first_k_dense_replace": 0}),
    ("deepseek_v3", "weights that do not add up, experts of a block in one tensor", {"norm_topk_prob": False, "routed_scaling_factor": 0.7, "fused": True}),
    ("glm4_moe_lite", "values wider than keys", {}),
    ("glm4_moe_lite", "another epsilon of other norms, dense blocks, packed", {"rms_norm_eps": 1e-2, "mlp_layer_types": ["sparse", "dense", "sparse"], "documents": PACKED}),
    ("mistral4", "softmax scores, queries that grow", {}),
    ("mistral4", "groups, dense first block, packed", {"n_group": 2, "topk_group": 1, "first_k_dense_replace": 1, "documents": PACKED}),
    ("gpt_neox", "parallel, old spelling", {}),
    ("gpt_neox", "serial, packed", {"use_parallel_residual": False, "documents": PACKED}),
    ("gpt_neox", "no biases in attention, tied", {"attention_bias": False, "tie_word_embeddings": True}),
    ("gptj", "neighbours rotated, head bias", {}),
    ("gptj", "whole heads rotated, packed", {"rotary_dim": 12, "documents": PACKED}),
    ("opt", "norm first, padding row", {"pad_token_id": 1}),
    ("opt", "norm behind, narrow tokens", {"do_layer_norm_before": False, "word_embed_proj_dim": 20}),
    ("opt", "no biases, gelu, packed", {"enable_bias": False, "activation_function": "gelu", "documents": PACKED}),
]

# Lies about one convention each: family, name, true options, what config.json says instead.
LIES = [
    ("gpt2", "tanh for exact gelu", {"activation_function": "gelu"}, {"activation_function": "gelu_new"}),
    ("gpt2", "wrong epsilon", {}, {"layer_norm_epsilon": 1e-6}),
    ("gpt2", "forgotten inverse layer", {"scale_attn_by_inverse_layer_idx": True}, {"scale_attn_by_inverse_layer_idx": False}),
    ("llama", "another theta", {}, {"rope_parameters": {"rope_type": "default", "rope_theta": 11000.0}}),
    ("llama", "wrong epsilon", {}, {"rms_norm_eps": 1e-5}),
    ("llama", "forgotten llama3", {"rope_parameters": LLAMA3}, {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}),
    ("llama", "linear for llama3", {"rope_parameters": LLAMA3}, {"rope_parameters": LLAMA3 | {"rope_type": "linear"}}),
    ("llama", "forgotten attention factor of yarn", {"rope_parameters": YARN}, {"rope_parameters": YARN | {"attention_factor": 1.0}}),
    ("llama", "forgotten padding row", {"pad_token_id": 5}, {"pad_token_id": None}),
    ("mistral", "window one too wide", {"sliding_window": 6}, {"sliding_window": 7}),
    ("mistral", "window one too narrow", {"sliding_window": 6}, {"sliding_window": 5}),
    ("qwen2", "a window that is off, on", {}, {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0, "layer_types": None}),
    ("gemma2", "forgotten cap of scores", {}, {"attn_logit_softcapping": None}),
    ("gemma2", "forgotten cap of logits", {}, {"final_logit_softcapping": None}),
    ("gemma2", "scale by head width", {}, {"query_pre_attn_scalar": 8}),
    ("gemma2", "windows in odd layers", {"sliding_window": 6}, {"layer_types": ["full_attention", "sliding_attention", "full_attention"]}),
    ("gemma3_text", "one angle for all", {"num_hidden_layers": 7, "sliding_window": 6}, {"rope_parameters": {"full_attention": {"rope_theta": 1e4}, "sliding_attention": {"rope_theta": 1e4}}}),
    ("qwen3_moe", "one expert too few", {"norm_topk_prob": True}, {"num_experts_per_tok": 1}),
    ("qwen3_moe", "weights made to add up to one", {}, {"norm_topk_prob": True}),
    ("qwen3_moe", "weights that do not add up to one", {"norm_topk_prob": True}, {"norm_topk_prob": False}),
    ("qwen3_5_text", "all of each head rotated", {}, {"rope_parameters": HALF | {"rope_theta": 1e4, "partial_rotary_factor": 1.0}}),
    ("qwen3_5_text", "another epsilon", {}, {"rms_norm_eps": 1e-5}),
    ("gpt_oss", "no windows", {}, {"layer_types": ["full_attention"] * 3}),
    ("gpt_oss", "another limit of gates", {}, {"swiglu_limit": 0.8}),
    ("gpt_oss", "another slope of gates", {}, {"swiglu_alpha": 1.6}),
    ("gpt_oss", "whole steps of yarn", {}, {"rope_parameters": YARN | {"truncate": True}}),
    ("mixtral", "another theta", {}, {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}),
    ("olmoe", "forgotten limit", {"clip_qkv": 1.5}, {"clip_qkv": None}),
    ("olmoe", "another limit", {"clip_qkv": 1.5}, {"clip_qkv": 1.6}),
    ("ministral3", "queries that do not grow", {}, {"rope_parameters": GROWING | {"llama_4_scaling_beta": 0}}),
    ("smollm3", "every block rotated", {}, {"no_rope_layers": [1, 1, 1, 1, 1]}),
    ("smollm3", "every third block not rotated", {}, {"no_rope_layers": None, "no_rope_layer_interval": 3}),
    ("olmo3", "a window in every block", {}, {"layer_types": ["sliding_attention"] * 5}),
    ("deepseek_v3", "halves rotated", {}, {"rope_interleave": False}),
    ("deepseek_v3", "no groups", {}, {"n_group": 1, "topk_group": 1}),
    ("deepseek_v3", "a group too many", {}, {"topk_group": 3}),
    ("deepseek_v3", "forgotten factor of the experts", {}, {"routed_scaling_factor": 1}),
    ("deepseek_v3", "weights that do not add up to one", {}, {"norm_topk_prob": False}),
    ("deepseek_v3", "scores without the factor of yarn", {"rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}}, {"rope_parameters": YARN | {"attention_factor": 1.0}}),
    ("glm4_moe_lite", "another epsilon", {}, {"rms_norm_eps": 1e-6}),
    ("mistral4", "queries that do not grow", {}, {"rope_parameters": GROWING | {"mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0}}),
    ("granite", "forgotten factor of the embedding", {}, {"embedding_multiplier": 1}),
    ("granite", "forgotten factor of the scores", {}, {"attention_multiplier": 6 ** -0.5}),
    ("granite", "forgotten factor of the residual", {}, {"residual_multiplier": 1}),
    ("granite", "forgotten divisor of the logits", {}, {"logits_scaling": 1}),
    ("gpt_neox", "serial for parallel", {}, {"use_parallel_residual": False}),
    ("gpt_neox", "wrong share rotated", {}, {"rotary_pct": 0.7, "rope_parameters": None}),
    ("gptj", "wrong rotary_dim", {}, {"rotary_dim": 6}),
    ("opt", "forgotten padding row", {"pad_token_id": 1}, {"pad_token_id": None}),
]


def swapped_blocks(tensor, order, dim=0):
    blocks = tensor.chunk(len(order), dim)
    return torch.cat([blocks[block] for block in order], dim)


def pairs_for_halves(tensor, heads, rotated):
    """Rows of a query or key matrix in the order that makes a rotation of halves one of neighbours."""
    rows = tensor.view(heads, -1, *tensor.shape[1:])
    order = torch.arange(rotated).view(2, -1).t().reshape(-1)
    return torch.cat([rows[:, order], rows[:, rotated:]], 1).reshape(tensor.shape)


def blocks_for_heads(tensor, heads):
    """neox's fused matrix as q | k | v of all heads, in place of q | k | v inside each head."""
    return tensor.view(heads, 3, -1, *tensor.shape[1:]).transpose(0, 1).reshape(tensor.shape)


# Tensors as a model of another convention would have them: family, name, options, end of the names, change.
OTHER_TENSORS = [
    ("gpt2", "keys before queries", {}, "c_attn.weight", lambda t: swapped_blocks(t, [1, 0, 2], 1)),
    ("llama", "neighbours rotated", {}, ("q_proj.weight", "k_proj.weight"), lambda t: pairs_for_halves(t, t.shape[0] // 8, 8)),
    ("llama", "scale by hidden / heads", {}, "q_proj.weight", lambda t: t * (8 / 5) ** 0.5),
    ("qwen2", "forgotten biases", {}, ("q_proj.bias", "k_proj.bias", "v_proj.bias"), torch.zeros_like),
    ("qwen3", "norms of heads without weights", {}, ("q_norm.weight", "k_norm.weight"), torch.ones_like),
    ("phi3", "keys before queries", {}, "qkv_proj.weight", lambda t: torch.cat([t[12:36], t[:12], t[36:]])),
    ("phi3", "up before gate", {}, "gate_up_proj.weight", lambda t: swapped_blocks(t, [1, 0])),
    ("gemma2", "norms of w", {}, "norm.weight", lambda t: t - 1),
    ("gemma2", "embeddings without a factor", {"tie_word_embeddings": False}, "embed_tokens.weight", lambda t: t / 30**0.5),
    ("gemma2", "factor of embeddings rounded to bfloat16", {"tie_word_embeddings": False}, "embed_tokens.weight", lambda t: t * (5.46875 / 30**0.5)),
    ("qwen3_moe", "up for gate", {}, "gate_proj.weight", torch.neg),
    ("qwen3_moe", "an expert of another number", {}, "experts.1.down_proj.weight", lambda t: t.roll(1, 0)),
    ("qwen3_moe", "a router of other experts", {}, "mlp.gate.weight", lambda t: t.roll(1, 0)),
    ("qwen3_5_text", "norms of w", {}, "input_layernorm.weight", lambda t: t - 1),
    ("qwen3_5_text", "a recurrent layer's norm of 1 + w", {}, "linear_attn.norm.weight", lambda t: t - 1),
    ("qwen3_5_text", "gates before queries", {}, "q_proj.weight", lambda t: t.view(6, 2, 16, -1).flip(1).reshape(t.shape)),
    ("qwen3_5_text", "gates after all queries", {}, "q_proj.weight", lambda t: t.view(2, 6, 16, -1).transpose(0, 1).reshape(t.shape)),
    ("qwen3_5_text", "values before keys", {}, "in_proj_qkv.weight", lambda t: torch.cat([t[:16], t[32:], t[16:32]])),
    ("qwen3_5_text", "taps in the other order", {}, "conv1d.weight", lambda t: t.flip(2)),
    ("qwen3_5_text", "rates without the exponential", {}, "A_log", lambda t: t.abs().log()),
    ("qwen3_5_text", "steps without a bias", {}, "dt_bias", torch.zeros_like),
    ("qwen3_5_text", "heads that take turns with keys", {}, ("in_proj_z.weight",), lambda t: t.view(2, 3, 6, -1).transpose(0, 1).reshape(t.shape)),
    ("qwen3_5_moe_text", "no gate of the shared expert", {}, "shared_expert_gate.weight", torch.zeros_like),
    ("gpt_oss", "forgotten sinks", {}, ".sinks", lambda t: t - 100),
    ("gpt_oss", "gates before ups", {}, "experts.gate_up_proj", lambda t: t.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)),
    ("gpt_oss", "ups without the one", {}, "experts.gate_up_proj_bias", lambda t: t - torch.tensor([0.0, 1.0]).repeat(t.shape[1] // 2)),
    ("gpt_oss", "a router without a bias", {}, "router.bias", torch.zeros_like),
    ("deepseek_v3", "a choice without the bias", {}, "e_score_correction_bias", torch.zeros_like),
    ("deepseek_v3", "rotated part before the other", {}, "q_b_proj.weight", lambda t: t.view(6, 10, -1).roll(4, 1).reshape(t.shape)),
    ("deepseek_v3", "rotated part of keys before latents", {}, "kv_a_proj_with_mqa.weight", lambda t: t.roll(4, 0)),
    ("deepseek_v3", "values before keys", {}, "kv_b_proj.weight", lambda t: t.view(6, 11, -1).roll(5, 1).reshape(t.shape)),
    ("deepseek_v3", "all keys before values", {}, "kv_b_proj.weight", lambda t: t.view(11, 6, -1).transpose(0, 1).reshape(t.shape)),
    ("deepseek_v3", "latents without norms' weights", {}, ("q_a_layernorm.weight", "kv_a_layernorm.weight"), torch.ones_like),
    ("glm4_moe_lite", "no shared expert", {}, "shared_experts.down_proj.weight", torch.zeros_like),
    ("mistral4", "up before gate", {}, "experts.gate_up_proj", lambda t: swapped_blocks(t, [1, 0], 1)),
    ("mixtral", "w2 for w1", {}, ".w1.weight", lambda t: t.roll(1, 0)),
    ("olmoe", "norms of each head", {}, "q_norm.weight", lambda t: t[:6].repeat(6)),
    ("gpt_neox", "q, k, v of all heads", {}, "query_key_value.weight", lambda t: blocks_for_heads(t, 3)),
    ("gpt_neox", "one norm for both branches", {}, "post_attention_layernorm.weight", torch.ones_like),
    ("gptj", "halves rotated", {}, ("q_proj.weight", "k_proj.weight"), lambda t: pairs_for_halves(t, 3, 4)),
    ("gptj", "forgotten bias of the head", {}, "lm_head.bias", torch.zeros_like),
    ("opt", "positions without an offset", {}, "embed_positions.weight", lambda t: t.roll(2, 0)),
]


# What older versions of transformers had in the files of a family, under names without prefix.
OLD_BUFFERS = {
    "gpt2": {"h.0.attn.bias": torch.tril(torch.ones(1, 1, 32, 32)), "h.0.attn.masked_bias": torch.tensor(-1e4)},
    "llama": {"layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)},
}


def respell(config, how):
    """Writes the same settings as version 4 of transformers did, or leaves out defaults."""
    if how == "absent":
        del config["head_dim"], config["num_key_value_heads"]
    elif how == "window that is off":
        config |= {"sliding_window": 4, "max_window_layers": 0}
        del config["layer_types"]
    elif how == "no layer_types":
        del config["layer_types"]
    elif how == "interval":
        del config["layer_types"]
        config["full_attention_interval"] = 2
    elif how == "num_experts":
        config["num_experts"] = config.pop("num_local_experts")
    elif how == "longrope as yarn":
        config["rope_parameters"]["rope_type"] = "yarn"
    elif how == "old":
        settings = config.pop("rope_parameters")
        config["rope_theta"] = settings.pop("rope_theta")
        settings["type"] = settings.pop("rope_type", "default")
        config["rope_scaling"] = None if settings["type"] == "default" else settings
        config["torch_dtype"] = config.pop("dtype", "float32")
    elif how == "old gemma3":
        settings = config.pop("rope_parameters")
        config["rope_theta"] = settings["full_attention"]["rope_theta"]
        config["rope_local_base_freq"] = settings["sliding_attention"]["rope_theta"]
        config["sliding_window_pattern"] = 6
        del config["layer_types"]


    elif how == "null":
        config |= {"norm_topk_prob": None, "rope_interleave": None}
    elif how == "old olmo3":
        settings = config.pop("rope_parameters")["full_attention"]
        config["rope_theta"] = settings.pop("rope_theta")
        config["rope_scaling"] = settings
        config["original_max_position_embeddings"] = 7  # which the library reads inside alone


def change_config(directory, how, fields):
    path = directory / "config.json"
    config = json.loads(path.read_text())
    respell(config, how)
    config.update(fields)
    path.write_text(json.dumps(config))


def make_probe(directory, documents, seed):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, VOCABULARY, (ROWS, LENGTH), generator=generator)
    tokens[0, 3:5], tokens[1, 2] = 5, 1  # the rows that cases use as padding
    mask = (torch.rand(ROWS, LENGTH, generator=generator) < 0.6).to(torch.uint8)
    probe = {"input_ids": tokens, "loss_mask": mask}
    if documents:
        probe["documents"] = torch.tensor(documents)
        for row, lengths in enumerate(documents):
            # Neither the first token of a document nor padding is a target.
            begin = 0
            for length in lengths:
                if begin < LENGTH:
                    mask[row, begin] = 0
                begin += length
            mask[row, begin:] = 0
    save_file(probe, directory / "probe.safetensors")
    return probe


def logits_of(model, tokens, documents):
    """Each document in a row of its own: no mask, no packing."""
    if not documents:
        return model(input_ids=tokens, use_cache=False).logits
    rows = []
    for row, lengths in enumerate(documents):
        parts, begin = [], 0
        for length in filter(None, lengths):
            own = tokens[row : row + 1, begin : begin + length]
            parts.append(model(input_ids=own, use_cache=False).logits)
            begin += length
        parts.append(torch.zeros(1, LENGTH - begin, VOCABULARY, dtype=torch.float64))
        rows.append(torch.cat(parts, 1))
    return torch.cat(rows)


def reference(model, probe, documents):
    model = model.double()
    tokens = probe["input_ids"]
    logits = logits_of(model, tokens, documents)
    labels = torch.where(probe["loss_mask"].bool(), tokens, -100)[:, 1:]
    loss = torch.nn.functional.cross_entropy(
        logits[:, :-1].reshape(-1, VOCABULARY), labels.reshape(-1), ignore_index=-100
    )
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    gradients |= {name: torch.zeros_like(bias) for name, bias in random_models.choice_biases(model).items()}
    gradients = random_models.parts_of_experts(random_models.published(model.config.model_type, gradients))
    norm = torch.sqrt(sum(gradient.square().sum() for gradient in gradients.values()))
    return logits.detach(), loss.item(), norm.item(), gradients


def compare(ours, logits, loss, norm, gradients, documents):
    """The worst quotient of difference and tolerance for each quantity."""
    difference = (ours["logits"].double() - logits).abs()
    if documents:  # padding computes nothing
        for row, lengths in enumerate(documents):
            difference[row, sum(lengths) :] = 0
    names = {name.removeprefix("gradient.") for name in ours if name.startswith("gradient.")}
    assert names == set(gradients), names ^ set(gradients)
    largest = max(gradient.norm().item() for gradient in gradients.values())
    apart = {
        name: (ours["gradient." + name].double() - gradient).norm().item() / largest
        for name, gradient in gradients.items()
    }
    return {
        "logits": difference.max().item() / LOGITS, "loss": abs(ours["loss"].item() - loss) / loss / LOSS,
        "gradient norm": abs(ours["gradient_norm"].item() - norm) / norm / GRADIENT_NORM,
        "gradient of " + max(apart, key=apart.get): max(apart.values()) / GRADIENT,
    }


def change_tensors(directory, ends, change):
    path = directory / "model.safetensors"
    tensors = load_file(path)
    chosen = [name for name in tensors if name.endswith(ends)]
    assert chosen, f"no tensor ends with {ends}"
    tensors |= {name: change(tensors[name]).contiguous() for name in chosen}
    save_file(tensors, path)


def run_case(probe, family, name, options, seed, lie=None, other=None):
    options = dict(options)
    documents = options.pop("documents", None)
    bare_names = options.pop("bare_names", False)
    only_head = options.pop("only_head", False)
    fused = options.pop("fused", False)
    four_bits = {"quantization_config": {"quant_method": "mxfp4"}} if options.pop("mxfp4", False) else {}
    spelling = options.pop("file", None)
    with tempfile.TemporaryDirectory() as folder:
        directory = pathlib.Path(folder)
        model = random_models.random_model(family, BASES[family] | options, seed)
        old_buffers = OLD_BUFFERS[family] if bare_names else None
        random_models.save_model(model, directory, bare_names, only_head, old_buffers)
        if four_bits:
            save_file(random_models.in_four_bits(model, model.state_dict()), directory / "model.safetensors")
        if fused:
            save_file(dict(model.state_dict()), directory / "model.safetensors")
        change_config(directory, spelling, {**four_bits, **(lie or {})})
        if other:
            change_tensors(directory, *other)
        rows = make_probe(directory, documents, seed)
        print(directory, file=probe.stdin, flush=True)
        if problem := (probe.stdout.readline() or "it has died\n").strip():
            print(f"FAILED {family}: {name} (seed {seed}): {problem}")
            return False
        ours = load_file(directory / "result.safetensors")
        quotients = compare(ours, *reference(model, rows, documents), documents)
    agrees = all(quotient <= 1 for quotient in quotients.values())
    as_expected = agrees != bool(lie or other)
    shown = ", ".join(f"{quantity} {quotient:.3f}" for quantity, quotient in quotients.items())
    status = "ok    " if as_expected else "FAILED"
    print(f"{status} {family}: {name} (seed {seed}), of tolerance: {shown}", flush=True)
    return as_expected


def main():
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    if len(sys.argv) > 1:
        program = sys.argv[1]
    else:
        program = pathlib.Path(os.environ["STRAIT_BUILD"]) / "bin" / "model_probe"
    # One process for all: to load libtorch takes longer than a case.
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as probe:
        results = [run_case(probe, *case, seed) for seed, case in enumerate(CASES)]
        print("these must be noticed:")
        results += [run_case(probe, family, name, truth, 1, lie) for family, name, truth, lie in LIES]
        results += [run_case(probe, family, name, truth, 1, other=other) for family, name, truth, *other in OTHER_TENSORS]
    print(f"{sum(results)} of {len(results)} as expected of transformers {transformers.__version__}")
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
