"""Preferences by the real `strait run` against a plain PyTorch loop: ORPO, SimPO and DPO.

Pairs of answers are written as TRL writes them, as texts and as messages; the rows of the run must hold them all. Ten
steps must agree in losses, gradient norms, margins, accuracies and weights with the formulas of TRL in float64, which
see every answer on its own. For DPO the reference is PEFT's model with its adapters off. At the end the formulas are
wrong on purpose, and each mistake must be noticed.

usage: preferences_test.py   ($STRAIT_BIN: the folder of the programs, by default build/release/bin)
"""

import json
import pathlib
import random
import sys
import tempfile

SKIPPED = 77

try:
    import peft
    import torch
    from safetensors.torch import load_file
except ImportError as error:
    print(f"skipped: {error}; to run it: .venv/bin/pip install transformers peft")
    sys.exit(SKIPPED)

import adapters_test as adapters
import training_test as training
from random_models import save_model
from training_test import BATCH, BETAS, DECAY, EPSILON, CLIP, LOSS, NORM, STEPS, WEIGHTS

ROW, END = 80, 256
MODEL = {"vocab_size": 257, "max_position_embeddings": ROW}
LORA = {"target_modules": ["q_proj", "v_proj", "down_proj"]}
LOSSES = {"orpo": 0.1, "simpo": 2.0, "dpo": 0.1}  # with their default beta
MARGIN = 0.5


def pairs(seed, count):
    """Prompt, chosen answer, rejected answer; one to five of them have room in a row."""
    draw = random.Random(seed)

    def text(least, most):
        return "".join(draw.choice("abcde fgh") for _ in range(draw.randint(least, most)))

    return [(f"{text(1, 6)}?", "A" + text(0, 8), "B" + text(0, 8)) for _ in range(count)]


def record(number, prompt, chosen, rejected):
    """One of TRL's forms: with a prompt, or with what both begin with; texts or messages."""
    def said(role, text):
        return [{"role": role, "content": text}]

    if number % 4 == 0:
        return {"prompt": prompt, "chosen": chosen, "rejected": rejected}
    if number % 4 == 1:
        return {"chosen": prompt + chosen, "rejected": prompt + rejected}
    asked = said("user", prompt)
    answers = {"chosen": said("assistant", chosen), "rejected": said("assistant", rejected)}
    if number % 4 == 2:
        return {"prompt": asked, **answers}
    return {key: asked + answer for key, answer in answers.items()}


def documents(number, prompt, chosen, rejected):
    """Byte tokens of both documents, and where the answer begins."""
    if number % 4 > 1:
        prompt, chosen, rejected = f"user: {prompt}\nassistant: ", chosen + "\n", rejected + "\n"
    return [((*(prompt + answer).encode(), END), len(prompt)) for answer in (chosen, rejected)]


def pairs_of_rows(rows):
    """By row: its pairs of documents, each as tokens and the places of targets."""
    found = []
    for tokens, mask, numbers in zip(rows["input_ids"], rows["loss_mask"], rows["document"]):
        own = [(tuple(tokens[numbers == n].tolist()), tuple(mask[numbers == n].nonzero().flatten().tolist()))
               for n in range(int(numbers.max()) + 1)]
        assert len(own) % 2 == 0, "half of a pair"
        found.append([own[i : i + 2] for i in range(0, len(own), 2)])
    return found


def log_probabilities(model, document):
    tokens, places = torch.tensor(document[0]), torch.tensor(document[1])
    logits = model(input_ids=tokens[None], use_cache=False).logits[0]
    return logits.log_softmax(-1)[places - 1, tokens[places]]


def loss_of(loss, policy, reference, beta):
    """TRL's losses of a pair, and its rewards, from the log-probabilities of the tokens of both answers."""
    logsigmoid = torch.nn.functional.logsigmoid
    if loss == "dpo":
        rewards = [beta * (own.sum() - other.sum()) for own, other in zip(policy, reference)]
        return -logsigmoid(rewards[0] - rewards[1]), rewards
    chosen, rejected = (own.mean() for own in policy)
    rewards = [beta * chosen, beta * rejected]
    if loss == "simpo":
        return -logsigmoid(beta * (chosen - rejected - MARGIN / beta)), rewards
    odds = (chosen - rejected) - (torch.log1p(-torch.exp(chosen)) - torch.log1p(-torch.exp(rejected)))
    return -chosen - beta * logsigmoid(odds), rewards


def plain_loop(model, rows, loss, beta, sums_for_means=False, swapped=False, frozen=True):
    parameters = [value for value in model.parameters() if value.requires_grad]
    groups = [{"params": [p for p in parameters if (p.dim() >= 2) == wide], "weight_decay": DECAY * wide}
              for wide in (True, False)]
    optimizer = torch.optim.AdamW(groups, betas=BETAS, eps=EPSILON)
    lines = []
    for step in range(STEPS):
        batch = [pair for i in range(BATCH) for pair in rows[(step * BATCH + i) % len(rows)]]
        optimizer.zero_grad()
        sums = torch.zeros(3, dtype=torch.float64)
        for pair in batch:
            policy = [log_probabilities(model, answer) for answer in pair]
            reference = policy
            if loss == "dpo" and frozen:
                with model.disable_adapter(), torch.no_grad():
                    reference = [log_probabilities(model, answer) for answer in pair]
            reference = [own.detach() for own in reference]
            if sums_for_means:
                policy = [own.sum()[None] for own in policy]
            if swapped:
                policy, reference = policy[::-1], reference[::-1]
            value, rewards = loss_of(loss, policy, reference, beta)
            (value / len(batch)).backward()
            apart = (rewards[0] - rewards[1]).item()
            sums += torch.tensor([value.item(), apart, apart > 0], dtype=torch.float64)
        norm = training.clip_gradients(parameters, CLIP)
        lines.append([*(sums / len(batch)).tolist(), norm])
        for group in optimizer.param_groups:
            group["lr"] = training.rate_of(step, False)
        optimizer.step()
    return lines


def quotients(metrics, lines):
    columns = list(zip(*lines))
    names = ["loss", "margin", "accuracy", "grad_norm"]
    ours = {name: [line[name] for line in metrics] for name in names}
    apart = {name: max(abs(a - b) for a, b in zip(ours[name], theirs)) for name, theirs in zip(names, columns)}
    return {
        "losses": training.relative(ours["loss"], columns[0]) / LOSS,
        "norms": training.relative(ours["grad_norm"], columns[3]) / NORM,
        "margins": apart["margin"] / (LOSS * max(map(abs, ours["margin"]))),
        "accuracies": apart["accuracy"] / 1e-12,
    }


def run_case(loss, stages, seed, mistakes):
    with tempfile.TemporaryDirectory() as name_of_folder:
        folder = pathlib.Path(name_of_folder)

        def model():
            plain = training.random_family_model("llama", MODEL, seed)
            return adapters.random_adapter(plain, LORA, seed).double() if loss == "dpo" else plain.double()

        save_model(training.random_family_model("llama", MODEL, seed), folder / "source")
        drawn = list(enumerate(pairs(seed, 60)))
        for name in ("train", "eval"):
            (folder / f"{name}.jsonl").write_text(
                "".join(json.dumps(record(number, *pair)) + "\n" for number, pair in drawn))
        settings = {"data.row": ROW, "data.packing": "decreasing", "data.tokenizer": "bytes",
                    "train.preference.loss": loss, "data.train": "train.jsonl", "data.eval": "eval.jsonl"}
        if loss == "dpo":
            model().float().save_pretrained(folder / "adapter")
            settings["model.adapter"] = "adapter"
        metrics = training.train(folder, {"stages": stages, "set": settings})
        rows = pairs_of_rows(load_file(folder / "runs/golden/data/train.safetensors"))
        packed = sorted(tuple(pair) for row in rows for pair in row)
        expected = sorted(tuple((tokens, tuple(range(start, len(tokens)))) for tokens, start in documents(n, *pair))
                          for n, pair in drawn)
        assert packed == expected, "the rows do not hold the pairs of the file"
        assert any(len(row) > 1 for row in rows), "nothing was packed"
        events = [json.loads(line) for line in (folder / "runs/golden/events.jsonl").read_text().splitlines()]
        evaluations = [event["loss"] for event in events if "loss" in event]
        trained = model()
        found = quotients(metrics, plain_loop(trained, rows, loss, LOSSES[loss]))
        results = []
        for name, mistake in mistakes.items():
            wrong = quotients(metrics, plain_loop(model(), rows, loss, **{"beta": LOSSES[loss], **mistake}))
            results.append(training.report("  noticed: " + name, seed, wrong, must_agree=False))
        training.strait(folder, "export", "runs/golden", "exported")
        if loss == "dpo":
            ours = load_file(folder / "exported/adapter_model.safetensors")
            theirs = peft.get_peft_model_state_dict(trained)
        else:
            ours = load_file(folder / "exported/model.safetensors")
            theirs = dict(trained.named_parameters())
        assert set(ours) == set(theirs), set(ours) ^ set(theirs)
        found["weights"] = max((ours[n].double() - value).abs().max().item() for n, value in theirs.items()) / WEIGHTS
        with torch.no_grad():
            lines = plain_evaluation(trained, rows, loss)
        found["evaluation"] = abs(evaluations[-1] - lines) / abs(lines) / (10 * LOSS)
        return [training.report(f"{loss}, {stages} stages", seed, found), *results]


def plain_evaluation(model, rows, loss):
    values = []
    for pair in (pair for row in rows for pair in row):
        policy = [log_probabilities(model, answer) for answer in pair]
        reference = policy
        if loss == "dpo":
            with model.disable_adapter():
                reference = [log_probabilities(model, answer) for answer in pair]
        values.append(loss_of(loss, policy, reference, LOSSES[loss])[0].item())
    return sum(values) / len(values)


def main():
    torch.set_num_threads(1)
    results = run_case("orpo", 1, 1, {"sums in place of means": {"sums_for_means": True}})
    results += run_case("simpo", 2, 2, {"answers swapped": {"swapped": True}})
    results += run_case("dpo", 3, 3, {"a reference that follows": {"frozen": False}})
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
