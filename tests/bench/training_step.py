"""A training step of one stage against the same model in PyTorch, eager and compiled: the same layer
sizes, rows and threads, in turn. See README.md.

usage: training_step.py [--bin FOLDER] [--rounds 3] [--steps 4] [--threads 2] [--models NAME ...]
                        [--compile] [--former FOLDER] [--quick]

Needs transformers; exit code 77 where it is missing. Models have the layer sizes and the vocabulary of
the named ones, and few blocks, so that they fit a small machine; the head and the table weigh the more.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

try:
    import torch
    import transformers
    from safetensors.torch import save_file
except ImportError as error:
    print(f"skipped: {error}; to run it: .venv/bin/pip install transformers")
    sys.exit(77)

import machinery

WARM = 2  # steps before times count
MODELS = {
    "gpt2-124m": ("gpt2",
                  {"n_layer": 3, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0},
                  {"row": 256, "batch": 8, "micro_batch": 4}),
    "qwen2-0.5b": ("qwen2",
                   {
                       "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 3, "num_attention_heads": 14,
                       "num_key_value_heads": 2, "tie_word_embeddings": True,
                   },
                   {"row": 256, "batch": 8, "micro_batch": 4}),
    # A quarter of the experts, and of the tokens that each of all 128 has in a micro-batch of 4096.
    "qwen3-30b-a3b": ("qwen3_moe",
                      {
                          "vocab_size": 8192, "hidden_size": 2048, "num_hidden_layers": 2, "num_attention_heads": 32,
                          "num_key_value_heads": 4, "head_dim": 128, "num_experts": 32, "num_experts_per_tok": 8,
                          "moe_intermediate_size": 768, "norm_topk_prob": True,
                      },
                      {"row": 256, "batch": 8, "micro_batch": 4}),
    # Three recurrent blocks and one with attention.
    "qwen3.5-0.8b": (
        "qwen3_5_text",
        {
            "vocab_size": 8192, "hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 4,
            "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "linear_num_key_heads": 16,
            "linear_num_value_heads": 16, "tie_word_embeddings": True,
        },
        {"row": 256, "batch": 8, "micro_batch": 4},
    ),
    # Half the width of Mixtral 8x7B, and an eighth of its matrices.
    "mixtral-8": ("mixtral",
                  {
                      "vocab_size": 8192, "hidden_size": 2048, "intermediate_size": 3584, "num_hidden_layers": 2,
                      "num_attention_heads": 16, "num_key_value_heads": 4, "num_local_experts": 8,
                  },
                  {"row": 256, "batch": 8, "micro_batch": 4}),
    "olmoe-1b-7b": ("olmoe",
                    {
                        "vocab_size": 8192, "hidden_size": 2048, "intermediate_size": 1024, "num_hidden_layers": 1,
                        "num_attention_heads": 16, "num_key_value_heads": 16, "num_experts": 64,
                        "num_experts_per_tok": 8,
                    },
                    {"row": 256, "batch": 8, "micro_batch": 4}),
    # An eighth of the experts; three recurrent blocks and one with attention.
    "qwen3.5-35b-a3b": (
        "qwen3_5_moe_text",
        {
            "vocab_size": 8192, "hidden_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 16,
            "num_key_value_heads": 2, "head_dim": 256, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
            "num_experts": 32, "num_experts_per_tok": 8, "moe_intermediate_size": 512,
            "shared_expert_intermediate_size": 512,
        },
        {"row": 256, "batch": 8, "micro_batch": 4},
    ),
    # A quarter of the experts.
    "gpt-oss-20b": ("gpt_oss",
                    {
                        "vocab_size": 8192, "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 2,
                        "num_local_experts": 8, "num_experts_per_tok": 4,
                    },
                    {"row": 256, "batch": 8, "micro_batch": 4}),
    # The layers of Moonlight 16B-A3B, half of the experts: a dense block and one with experts.
    "deepseek-v3-16b": (
        "deepseek_v3",
        {
            "vocab_size": 8192, "hidden_size": 2048, "intermediate_size": 11264, "moe_intermediate_size": 1408,
            "num_hidden_layers": 2, "num_attention_heads": 16, "num_key_value_heads": 16, "n_shared_experts": 2,
            "n_routed_experts": 32, "num_experts_per_tok": 6, "q_lora_rank": None, "kv_lora_rank": 512,
            "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_group": 1, "topk_group": 1,
            "first_k_dense_replace": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.446,
        },
        {"row": 256, "batch": 8, "micro_batch": 4},
    ),
}
QUICK = {"n_layer": 1, "n_embd": 64, "n_head": 2, "vocab_size": 512}


def write_inputs(folder, name, quick):
    family, options, sizes = MODELS[name]
    config = transformers.AutoConfig.for_model(family, **(options | (QUICK if quick else {})))
    config.save_pretrained(folder / "model")
    generator = torch.Generator().manual_seed(1)
    rows = torch.randint(0, config.vocab_size, (64, sizes["row"]), generator=generator)
    save_file({"input_ids": rows.to(torch.int32)}, folder / "rows.safetensors")
    return config, sizes, rows


def seconds_of_ours(folder, bin, sizes, steps, threads):
    program = pathlib.Path(bin).resolve() / "strait"
    settings = {
        "data.train": "rows.safetensors", "data.tokenizer": None, "data.row": sizes["row"], "pipeline.stages": 1,
        "pipeline.threads": threads, "train.steps": steps + WARM, "train.batch": sizes["batch"],
        "train.micro_batch": sizes["micro_batch"], "train.learning_rate": 1e-5, "checkpoint.every": 0,
    }
    machinery.write_recipe(folder, "ours", settings)
    command = [program, "run", "ours.toml", "--json", "--replace"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{command} ended with {done.returncode}: {done.stdout[-800:]}{done.stderr}")
    return [step["seconds"] for step in machinery.metrics_of(folder, "ours")[WARM:]]


def torch_step(model, optimizer, rows, sizes):
    optimizer.zero_grad()
    parts = sizes["batch"] // sizes["micro_batch"]
    for part in rows[: sizes["batch"]].chunk(parts):
        loss = model(input_ids=part, labels=part, use_cache=False).loss / parts
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def seconds_of_torch(config, rows, sizes, steps, threads, compiled):
    torch.set_num_threads(threads)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").float()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    forward = torch.compile(model) if compiled else model
    seconds = []
    for _ in range(steps + WARM):
        begin = time.perf_counter()
        torch_step(forward, optimizer, rows, sizes)
        seconds.append(time.perf_counter() - begin)
    return seconds[WARM:]


def compare(name, options):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        config, sizes, rows = write_inputs(folder, name, options.quick)
        taken = {}
        for _ in range(options.rounds):
            builds = {"strait": options.bin} | ({"former": options.former} if options.former else {})
            for way, bin in builds.items():
                taken.setdefault(way, []).extend(
                    seconds_of_ours(folder, bin, sizes, options.steps, options.threads)
                )
            for way in ["eager"] + ["compile"] * options.compile:
                taken.setdefault(way, []).extend(
                    seconds_of_torch(config, rows, sizes, options.steps, options.threads, way == "compile")
                )
    medians = {way: statistics.median(seconds) for way, seconds in taken.items()}
    for way, seconds in medians.items():
        quickest = min(taken[way])
        print(f"{name:15} {way:8} {seconds:9.3f} s a step (quickest {quickest:.3f})"
              f"   {seconds / medians['strait']:.2f} times strait's")


def main():
    options = machinery.options_of(__doc__, rounds=3, steps=4, threads=2, models=MODELS, compile=False, former=None)
    if options.quick:
        options.rounds, options.steps, options.models = 1, 1, ["gpt2-124m"]
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    print(f"load {os.getloadavg()[0]:.2f}, {options.threads} threads, torch {torch.__version__}")
    for name in options.models:
        compare(name, options)
    print(f"load {os.getloadavg()[0]:.2f}")


if __name__ == "__main__":
    main()
