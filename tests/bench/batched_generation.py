"""Tokens a second of `strait generate` with 1, 8 and 64 prompts together, and of transformers' generate with the same
weights, prompts and threads, in turn. See README.md.

usage: batched_generation.py [--bin FOLDER] [--rounds 3] [--threads 2] [--together 1 8 64]
                             [--tokens 64] [--blocks 6] [--limit SHARE] [--latent] [--prompt 9]
                             [--former FOLDER] [--cache int8] [--quick]

Needs transformers; exit code 77 where it is missing. The model is half the blocks of GPT-2 with 124 M parameters,
random weights. Loading and prompts cancel out: a time is that of long answers less that of short ones. With --limit,
strait is compared with itself in a control group with that share of the model's bytes (needs root). With --latent the
model has blocks of DeepSeek V3's kind with the attention of Moonlight 16B-A3B and narrow MLPs. --prompt: the number of
tokens of a prompt. --former: another build in the place of transformers. --cache: strait itself, with keys and values kept like this.
"""

import contextlib
import json
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
except ImportError as error:
    print(f"skipped: {error}; to run it: .venv/bin/pip install transformers")
    sys.exit(77)

import machinery

import control_group

PROMPT = "The quick"
LATENT = {
    "vocab_size": 8192, "hidden_size": 2048, "intermediate_size": 1408, "num_attention_heads": 16,
    "num_key_value_heads": 16, "q_lora_rank": None, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "first_k_dense_replace": 1 << 10,
}
QUICK = {"n_layer": 1, "n_embd": 64, "n_head": 2, "vocab_size": 512}


def run(command, folder, group=None):
    enter = None if group is None else lambda: group.add(0)  # 0: the process that writes it
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, preexec_fn=enter)
    if done.returncode != 0:
        raise SystemExit(f"{command} ended with {done.returncode}: {done.stdout[-800:]}{done.stderr}")
    return done.stdout


def make_run(folder, program, options):
    if options.latent:
        config = transformers.AutoConfig.for_model("deepseek_v3", num_hidden_layers=options.blocks, **LATENT)
    else:
        config = transformers.GPT2Config(**{"n_layer": options.blocks} | (QUICK if options.quick else {}))
    config.save_pretrained(folder / "model")
    (folder / "text.txt").write_text(PROMPT * 200)
    machinery.write_recipe(folder, "asked", {
        "model.path": "model", "model.weights": "random", "data.train": "text.txt", "data.tokenizer": "bytes",
        "data.row": 128, "pipeline.stages": 1, "pipeline.threads": options.threads, "train.steps": 1,
        "train.epochs": None, "train.batch": 1, "train.micro_batch": 1, "train.learning_rate": 1e-5})
    run([program, "run", "asked.toml", "--json", "--replace"], folder)
    run([program, "export", "runs/asked", "exported"], folder)


def prompt_of(options):
    return (PROMPT * options.prompt)[:options.prompt]


def seconds_of_ours(folder, program, group, prompt, together, tokens, *words):
    (folder / "prompts.jsonl").write_text(f"{json.dumps({'prompt': prompt})}\n" * together)
    begin = time.perf_counter()
    lines = run([program, "generate", "runs/asked", "--prompts", "prompts.jsonl", "--on", "here", "--temperature", "1",
                 "--max-tokens", str(tokens), "--batch", str(together), *words], folder, group).splitlines()
    seconds = time.perf_counter() - begin
    made = sum(json.loads(line)["tokens"] for line in lines)
    return seconds, made


def seconds_of_torch(model, prompt, together, tokens):
    prompts = torch.tensor([list(prompt.encode())] * together)
    begin = time.perf_counter()
    model.generate(prompts, attention_mask=torch.ones_like(prompts), do_sample=True, top_k=0, max_new_tokens=tokens,
                   min_new_tokens=tokens, pad_token_id=0)
    return time.perf_counter() - begin, together * tokens


def main():
    options = machinery.options_of(__doc__, rounds=3, threads=2, together=[1, 8, 64], tokens=64, blocks=6, limit=0.0,
                                   latent=False, prompt=len(PROMPT), former=None, cache=None)
    short, long = (1, 5) if options.quick else (8, 8 + options.tokens)
    if options.quick:
        options.rounds, options.together = 1, [1, 8]
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(options.threads)
    print(f"load {os.getloadavg()[0]:.2f}, {options.threads} threads, torch {torch.__version__}, "
          f"transformers {transformers.__version__}")
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        program = options.bin / "strait"
        make_run(folder, program, options)
        prompt = prompt_of(options)
        ways = {"strait": lambda *words: seconds_of_ours(folder, program, None, prompt, *words)}
        if options.limit:
            size = sum(path.stat().st_size for path in (folder / "exported").glob("*.safetensors"))
            group = control_group.ControlGroup("bench", memory=int(options.limit * size))
            stack.callback(group.close)
            print(f"the model has {size / 1e6:.0f} MB, the group {options.limit * size / 1e6:.0f} MB")
            ways["streamed"] = lambda *words: seconds_of_ours(folder, program, group, prompt, *words)
        elif options.cache:
            kept = ("--cache", options.cache)
            ways[options.cache] = lambda *words: seconds_of_ours(folder, program, None, prompt, *words, *kept)
        elif options.former:
            former = pathlib.Path(options.former).resolve() / "strait"
            ways["former"] = lambda *words: seconds_of_ours(folder, former, None, prompt, *words)
        else:
            model = transformers.AutoModelForCausalLM.from_pretrained(folder / "exported").float().eval()
            ways["transformers"] = lambda *words: seconds_of_torch(model, prompt, *words)
        rates = {}
        for _ in range(options.rounds):
            for together in options.together:
                for way, measure in ways.items():
                    (few, made_few), (many, made_many) = measure(together, short), measure(together, long)
                    rates.setdefault((together, way), []).append((made_many - made_few) / (many - few))
    print(f"prompts together {'strait':>10} {list(ways)[1]:>14}   ratio")
    for together in options.together:
        ours, theirs = (statistics.median(rates[together, way]) for way in ways)
        print(f"{together:16} {ours:10.1f} {theirs:14.1f} {ours / theirs:7.2f}")
    first, last = (statistics.median(rates[together, "strait"]) for together in (options.together[0], options.together[-1]))
    print(f"strait with {options.together[-1]} against {options.together[0]}: {last / first:.1f}; tokens a second")
    print(f"load {os.getloadavg()[0]:.2f}")


if __name__ == "__main__":
    main()
