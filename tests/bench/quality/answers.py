"""How many prompts a model answers exactly. Greedy generation gives the expected answer if and only
if every token of it is the likeliest one behind the prompt and the answer so far, so one pass over
the whole record tells."""

import json

END = 256  # the byte tokenizer's end of a record
AT_ONCE = 50


def accuracy(model, records):
    """The share of exact answers; None where the transformers package is missing."""
    try:
        import torch
        import transformers
    except ImportError:
        return None
    transformers.utils.logging.disable_progress_bar()
    net = transformers.GPT2LMHeadModel.from_pretrained(model).eval()
    right = 0
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    for start in range(0, len(lines), AT_ONCE):
        batch = []
        for line in lines[start : start + AT_ONCE]:
            prompt, answer = line["prompt"].encode(), line["completion"].encode()
            batch.append((len(prompt), [*prompt, *answer, END]))
        width = max(len(tokens) for _, tokens in batch)
        padded = torch.tensor([tokens + [END] * (width - len(tokens)) for _, tokens in batch])
        with torch.no_grad():
            likeliest = net(padded).logits.argmax(-1).tolist()
        for (asked, tokens), said in zip(batch, likeliest):
            right += said[asked - 1 : len(tokens) - 1] == tokens[asked:]
    return right / len(lines)
