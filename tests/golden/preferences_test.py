"""Preferences by the real `strait run` against a plain PyTorch loop: ORPO, SimPO, DPO and KTO.

Pairs of answers are written as TRL writes them, as texts and as messages; the rows of the run must hold them all. Ten
steps must agree in losses, gradient norms, margins, accuracies and weights with the formulas of TRL in float64, which
see every answer on its own. For DPO and KTO the reference is PEFT's model with its adapters off, another directory, or
the model before its training. At the end the formulas are wrong on purpose, and each mistake must be noticed.

usage: preferences_test.py   ($STRAIT_BIN: the folder of the programs, by default build/release/bin)
"""

import json
import pathlib
import random
import sys
import tempfile

import adapters_test as adapters  # skips this test, too, where there is no peft
import training_test as training
from random_models import save_model
from training_test import BATCH, BETAS, CLIP, DECAY, EPSILON, LOSS, MICRO_BATCH, NORM, STEPS, WEIGHTS

import peft
import torch
from safetensors.torch import load_file

ROW, END = 80, 256
MODEL = {"vocab_size": 257, "max_position_embeddings": ROW}
LORA = {"target_modules": ["q_proj", "v_proj", "down_proj"]}
LOSSES = {"orpo": 0.1, "simpo": 2.0, "dpo": 0.1, "kto": 0.1}  # with their default beta
WEIGHTS_OF_KTO = {"desirable_weight": 1.3, "undesirable_weight": 0.8}
MARGIN = 0.5
ROUNDED = 1e-6  # margins up to it are those of equal models, which batches of other shapes move off 0
MISTAKEN_STEPS = 4  # until each mistake has to be noticed
REFERRING = ("dpo", "kto")  # compare with a reference


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


def rated_record(number, prompt, answer, desirable):
    """TRL's form of a rated answer."""
    return {"prompt": prompt, "completion": answer, "label": desirable}


def rated_answers(drawn):
    """Of each record prompt, answer, an answer to the prompt before, and the label."""
    answers = [(prompt, chosen, number % 3 > 0) for number, (prompt, chosen, _) in drawn]
    found = []
    for number, (prompt, answer, desirable) in enumerate(answers):
        before = answers[number - 1] if number > 0 else next(one for one in answers if one[0] != prompt)
        step = 1
        while before[0] == prompt:
            step += 1
            before = answers[number - step]
        found.append((prompt, answer, before[1], desirable))
    return found


def documents(number, prompt, chosen, rejected):
    """Byte tokens of both documents, and where the answer begins."""
    if number % 4 > 1:
        prompt, chosen, rejected = f"user: {prompt}\nassistant: ", chosen + "\n", rejected + "\n"
    return [((*(prompt + answer).encode(), END), len(prompt)) for answer in (chosen, rejected)]


def pairs_of_rows(rows):
    """By row: its pairs of documents, each as tokens and the places of targets."""
    found = []
    for tokens, mask, numbers in zip(rows["input_ids"], rows["loss_mask"], rows["document"]):
        own = [(tuple(tokens[numbers == n].tolist()), tuple(mask[numbers == n].nonzero().flatten().tolist()),
                int(mask[numbers == n].max()) != 2) for n in range(int(numbers.max()) + 1)]
        assert len(own) % 2 == 0, "half of a pair"
        found.append([own[i : i + 2] for i in range(0, len(own), 2)])
    return found


def log_probabilities(model, documents):
    """Of the answers of these documents. One pass of them all: what is padding comes after them, and no token sees it."""
    tokens = torch.nn.utils.rnn.pad_sequence([torch.tensor(one[0]) for one in documents], batch_first=True)
    logits = model(input_ids=tokens, use_cache=False).logits.log_softmax(-1)
    return [logits[row, torch.tensor(one[1]) - 1, tokens[row, torch.tensor(one[1])]] for row, one in enumerate(documents)]


def of_pairs(model, pairs):
    """Log-probabilities of both answers of each."""
    found = log_probabilities(model, [answer for pair in pairs for answer in pair])
    return [found[i : i + 2] for i in range(0, len(found), 2)]


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


def kto_losses(policy, reference, labels, beta, follows=False, one_term=False):
    """TRL's KTOTrainer of a micro-batch: losses and signed distances of the rewards from the KL term."""
    ratios = [[own.sum() - other.sum() for own, other in zip(*both)] for both in zip(policy, reference)]
    divergence = torch.stack([mismatched for _, mismatched in ratios]).mean().clamp(min=0)
    divergence = divergence if follows else divergence.detach()
    losses, margins = [], []
    for (ratio, mismatched), desirable in zip(ratios, labels):
        term = mismatched.detach().clamp(min=0) if one_term else divergence
        margin = beta * (ratio - term) * (1 if desirable else -1)
        weight = WEIGHTS_OF_KTO["desirable_weight" if desirable else "undesirable_weight"]
        losses.append(weight * (1 - torch.sigmoid(margin)))
        margins.append(margin)
    return losses, margins


def references_of(model, loss, pairs, frozen, values):
    """From `values` of another model, or of this one with its adapters off."""
    if values is not None:
        return [values[pair[0][:2], pair[1][:2]] for pair in pairs]
    if loss not in REFERRING or not frozen:
        return None
    with model.disable_adapter(), torch.no_grad():
        return of_pairs(model, pairs)


def values_of(model, rows):
    with torch.no_grad():
        return {(pair[0][:2], pair[1][:2]): found
                for row in rows for pair, found in zip(row, of_pairs(model, row))}


def losses_of(model, pairs_of_batch, loss, beta, values=None, sums_for_means=False, swapped=False, frozen=True,
              **of_kto):
    """The losses and margins of the pairs of a micro-batch."""
    policy = of_pairs(model, pairs_of_batch)
    reference = references_of(model, loss, pairs_of_batch, frozen, values)
    reference = reference or [[own.detach() for own in pair] for pair in policy]
    if loss == "kto":
        return kto_losses(policy, reference, [pair[0][2] for pair in pairs_of_batch], beta, **of_kto)
    losses, margins = [], []
    for own, other in zip(policy, reference):
        if sums_for_means:
            own = [one.sum()[None] for one in own]
        if swapped:
            own, other = own[::-1], other[::-1]
        value, rewards = loss_of(loss, own, other, beta)
        losses.append(value)
        margins.append(rewards[0] - rewards[1])
    return losses, margins


def plain_loop(model, rows, loss, beta, steps=STEPS, **settings):
    parameters = [value for value in model.parameters() if value.requires_grad]
    groups = [{"params": [p for p in parameters if (p.dim() >= 2) == wide], "weight_decay": DECAY * wide}
              for wide in (True, False)]
    optimizer = torch.optim.AdamW(groups, betas=BETAS, eps=EPSILON)
    lines = []
    for step in range(steps):
        batch = [rows[(step * BATCH + i) % len(rows)] for i in range(BATCH)]
        count = sum(map(len, batch))
        optimizer.zero_grad()
        sums = torch.zeros(3, dtype=torch.float64)
        for first in range(0, BATCH, MICRO_BATCH):
            chosen = [pair for row in batch[first : first + MICRO_BATCH] for pair in row]
            losses, margins = losses_of(model, chosen, loss, beta, **settings)
            (torch.stack(losses).sum() / count).backward()
            for value, margin in zip(losses, margins):
                sums += torch.tensor([value.item(), margin.item(), margin.item() > ROUNDED], dtype=torch.float64)
        norm = training.clip_gradients(parameters, CLIP)
        lines.append([*(sums / count).tolist(), norm])
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
        "margins": apart["margin"] / (LOSS * max(map(abs, ours["margin"]))), "accuracies": apart["accuracy"] / 1e-12,
    }


def run_case(loss, stages, seed, mistakes, reference="adapters"):
    """reference: what DPO and KTO compare with: "adapters" off, another "directory", or the "first" weights."""
    adapted = loss in REFERRING and reference == "adapters"
    with tempfile.TemporaryDirectory() as name_of_folder:
        folder = pathlib.Path(name_of_folder)

        def model():
            plain = training.random_family_model("llama", MODEL, seed)
            return adapters.random_adapter(plain, LORA, seed).double() if adapted else plain.double()

        save_model(training.random_family_model("llama", MODEL, seed), folder / "source")
        drawn = list(enumerate(pairs(seed, 60)))
        rated = rated_answers(drawn)
        for name in ("train", "eval"):
            records = ([rated_record(number, prompt, answer, label)
                        for number, (prompt, answer, _, label) in enumerate(rated)] if loss == "kto"
                       else [record(number, *pair) for number, pair in drawn])
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
        settings = {"data.row": ROW, "data.packing": "decreasing", "data.tokenizer": "bytes",
                    "train.preference.loss": loss, "data.train": "train.jsonl", "data.eval": "eval.jsonl"}
        if loss == "kto":
            settings.update({f"train.preference.{key}": value for key, value in WEIGHTS_OF_KTO.items()})
        if adapted:
            model().float().save_pretrained(folder / "adapter")
            settings["model.adapter"] = "adapter"
        compared = model()
        if reference == "directory":
            compared = training.random_family_model("llama", MODEL, seed + 1)
            save_model(compared, folder / "reference")
            compared = compared.double()
            settings["train.preference.reference"] = "reference"
        metrics = training.train(folder, {"stages": stages, "set": settings})
        rows = pairs_of_rows(load_file(folder / "runs/golden/data/train.safetensors"))
        packed = sorted(tuple(pair) for row in rows for pair in row)
        expected = sorted(
            tuple((tokens, tuple(range(start, len(tokens))), label or i == 1)
                  for i, (tokens, start) in enumerate(documents(number, *texts)))
            for number, *texts, label in ([(0, *texts, label) for *texts, label in rated] if loss == "kto"
                                          else [(n, *pair, True) for n, pair in drawn]))
        assert packed == expected, "the rows do not hold the pairs of the file"
        assert any(len(row) > 1 for row in rows), "nothing was packed"
        events = [json.loads(line) for line in (folder / "runs/golden/events.jsonl").read_text().splitlines()]
        evaluations = [event for event in events if "loss" in event]
        values = values_of(compared, rows) if loss in REFERRING and not adapted else None
        trained = model()
        found = quotients(metrics, plain_loop(trained, rows, loss, LOSSES[loss], values=values))
        results = []
        for name, mistake in mistakes.items():
            settings = {"beta": LOSSES[loss], "values": values, "steps": MISTAKEN_STEPS, **mistake}
            wrong = quotients(metrics[:MISTAKEN_STEPS], plain_loop(model(), rows, loss, **settings))
            results.append(training.report("  noticed: " + name, seed, wrong, must_agree=False))
        training.strait(folder, "export", "runs/golden", "exported")
        if adapted:
            ours = load_file(folder / "exported/adapter_model.safetensors")
            theirs = peft.get_peft_model_state_dict(trained)
        else:
            ours = load_file(folder / "exported/model.safetensors")
            theirs = dict(trained.named_parameters())
        assert set(ours) == set(theirs), set(ours) ^ set(theirs)
        found["weights"] = max((ours[n].double() - value).abs().max().item() for n, value in theirs.items()) / WEIGHTS
        with torch.no_grad():
            theirs = plain_evaluation(trained, rows, loss, values)
        for name, value in zip(("loss", "margin", "accuracy"), theirs):
            found[f"evaluated {name}"] = abs(evaluations[-1][name] - value) / max(abs(value), 0.01) / (10 * LOSS)
        return [training.report(f"{loss}, {stages} stages, {reference}", seed, found), *results]


def plain_evaluation(model, rows, loss, values):
    sums, count = torch.zeros(3, dtype=torch.float64), sum(map(len, rows))
    for first in range(0, len(rows), MICRO_BATCH):
        chosen = [pair for row in rows[first : first + MICRO_BATCH] for pair in row]
        for value, margin in zip(*losses_of(model, chosen, loss, LOSSES[loss], values=values)):
            sums += torch.tensor([value.item(), margin.item(), margin.item() > ROUNDED], dtype=torch.float64)
    return (sums / count).tolist()


def main():
    torch.set_num_threads(1)
    results = run_case("orpo", 1, 1, {"sums in place of means": {"sums_for_means": True}})
    results += run_case("simpo", 2, 2, {"answers swapped": {"swapped": True}})
    results += run_case("dpo", 3, 3, {"a reference that follows": {"frozen": False}})
    results += run_case("dpo", 2, 4, {"no other reference": {"values": None, "frozen": False}}, "directory")
    results += run_case("kto", 2, 5, {"a KL term with a gradient": {"follows": True},
                                      "a KL term of one answer": {"one_term": True}})
    results += run_case("kto", 3, 6, {"a reference that follows": {"values": None, "frozen": False}}, "first")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
