"""What keys and values in 8 bits change: the loss of texts, and the likeliest tokens. See README.md.

usage: cache_quality.py [--bin FOLDER] [--steps 300] [--texts 40] [--quick]

A byte model of 3.3 M parameters is trained on the pages of docs/ but for every tenth paragraph, and asked through
`strait serve` for the probabilities of the tokens of these, once with each cache.
"""

import json
import pathlib
import re
import signal
import subprocess
import urllib.request

import machinery

MODEL = {**machinery.MODEL, "n_embd": 256, "n_head": 4}
CACHES = ("float32", "int8")


def paragraphs():
    pages = sorted((machinery.ROOT / "docs").glob("*.md"))
    texts = [text for page in pages for text in page.read_text().split("\n\n") if len(text) > 200]
    return [text for i, text in enumerate(texts) if i % 10], [text.encode()[:240].decode(errors="ignore") for text in texts[::10]]


def scores_of(program, folder, cache, texts):
    """Of every text, what `serve` says of its tokens: (logarithm, logarithm of the likeliest, whether it is that)."""
    served = subprocess.Popen([program, "serve", "runs/kept", "--port", "0", "--on", "here", "--cache", cache],
                              cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        url = next(found[0] for line in served.stdout if (found := re.search(r"http://127\.0\.0\.1:\d+/v1", line)))
        content = {"prompt": texts, "max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 1}
        request = urllib.request.Request(url + "/completions", json.dumps(content).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as reply:
            choices = json.load(reply)["choices"]
    finally:
        served.send_signal(signal.SIGINT)
        served.wait()
    scores = []
    for choice in choices:
        found = choice["logprobs"]
        scores += list(zip(found["token_logprobs"], found["top_logprobs"]))[1:-1]
    return scores


def main():
    options = machinery.options_of(__doc__, steps=300, texts=40)
    if options.quick:
        options.steps, options.texts = 2, 3
    train, kept = paragraphs()
    program = options.bin / "strait"
    with machinery.scratch() as folder:
        (folder / "model").mkdir()
        (folder / "model/config.json").write_text(json.dumps(MODEL))
        (folder / "text.txt").write_text("\n\n".join(train))
        machinery.write_recipe(folder, "kept", {
            "pipeline.stages": 1, "pipeline.threads": 2, "train.steps": options.steps, "train.epochs": None})
        subprocess.run([program, "run", "kept.toml", "--json", "--replace"], cwd=folder, check=True, capture_output=True)
        whole, bits = (scores_of(program, folder, cache, kept[:options.texts]) for cache in CACHES)
    losses = [-sum(own for own, _ in scores) / len(scores) for scores in (whole, bits)]
    changes = sorted(abs(one[0] - other[0]) for one, other in zip(whole, bits))
    same = sum(max(one[1], key=one[1].get) == max(other[1], key=other[1].get) for one, other in zip(whole, bits))
    print(f"loss of {len(whole)} tokens: float32 {losses[0]:.5f}, int8 {losses[1]:.5f}, {losses[1] - losses[0]:+.5f}")
    print(f"change of a logarithm: median {changes[len(changes) // 2]:.5f}, largest {changes[-1]:.4f}")
    print(f"the same likeliest token: {100 * same / len(whole):.2f} %")


if __name__ == "__main__":
    main()
