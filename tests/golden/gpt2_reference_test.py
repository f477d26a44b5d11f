"""Our GPT-2 against the one of the `transformers` package, on tiny random models.

Logits, masked loss, global gradient norm and every single gradient must agree within tolerances
that separate rounding from mistakes. The reference runs in float64, ours in float32.

usage: gpt2_reference_test.py [MODEL_PROBE]   (default: model_probe in $STRAIT_BUILD/bin)
"""

import json
import os
import pathlib
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

LOGITS = 1e-4  # absolute
LOSS = 1e-5  # relative
GRADIENT_NORM = 5e-5  # relative
GRADIENT = 1e-4  # of a tensor's difference, relative to the largest norm of a gradient

ROWS, LENGTH, VOCABULARY = 3, 20, 97

# Mistakes that must not pass: fields that the config.json we read lies about.
LIES = {
    "tanh for exact gelu": ({"activation_function": "gelu"}, {"activation_function": "gelu_new"}),
    "wrong epsilon": ({"layer_norm_epsilon": 1e-5}, {"layer_norm_epsilon": 1e-6}),
    "forgotten inverse layer": (
        {"scale_attn_by_inverse_layer_idx": True},
        {"scale_attn_by_inverse_layer_idx": False},
    ),
}

CASES = {
    "tied, tanh gelu": {},
    "untied": {"tie_word_embeddings": False},
    "exact gelu": {"activation_function": "gelu"},
    "relu": {"activation_function": "relu"},
    "other name of tanh gelu": {"activation_function": "gelu_pytorch_tanh"},
    "scaled by inverse layer": {"scale_attn_by_inverse_layer_idx": True},
    "unscaled attention": {"scale_attn_weights": False},
    "epsilon and inner width": {"layer_norm_epsilon": 1e-3, "n_inner": 50},
    "names without prefix, old buffers": {"bare_names": True},
    "only the head of a tied weight": {"only_head": True},
    "packed documents": {"documents": [[7, 13, 0], [20, 0, 0], [4, 1, 9]]},
}


def random_model(options, seed):
    torch.manual_seed(seed)
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=32,
        n_embd=32,
        n_layer=3,
        n_head=4,
        attn_implementation="eager",
        **options,
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0, 0.2)
            if ".ln_" in name and name.endswith("weight"):
                parameter.add_(1)
    return model


def save_model(model, directory, bare_names, only_head):
    model.config.save_pretrained(directory)
    tensors = {name: value.clone() for name, value in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del tensors["transformer.wte.weight" if only_head else "lm_head.weight"]
    if bare_names:
        tensors = {name.removeprefix("transformer."): value for name, value in tensors.items()}
        tensors["h.0.attn.bias"] = torch.tril(torch.ones(1, 1, 32, 32))
        tensors["h.0.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(tensors, directory / "model.safetensors")


def make_probe(directory, documents, seed):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, VOCABULARY, (ROWS, LENGTH), generator=generator)
    mask = (torch.rand(ROWS, LENGTH, generator=generator) < 0.6).to(torch.uint8)
    probe = {"input_ids": tokens, "loss_mask": mask}
    if documents:
        probe["documents"] = torch.tensor(documents)
        for row, lengths in enumerate(documents):
            # Neither the first token of a document nor padding is anybody's target.
            begin = 0
            for length in lengths:
                if begin < LENGTH:
                    mask[row, begin] = 0
                begin += length
            mask[row, begin:] = 0
    save_file(probe, directory / "probe.safetensors")
    return probe


def packed_arguments(documents):
    """Positions and the additive mask that transformers takes for packed rows."""
    positions = torch.zeros(ROWS, LENGTH, dtype=torch.long)
    allowed = torch.eye(LENGTH, dtype=torch.bool).repeat(ROWS, 1, 1, 1)
    for row, lengths in enumerate(documents):
        begin = 0
        for length in lengths:
            end = begin + length
            positions[row, begin:end] = torch.arange(length)
            allowed[row, 0, begin:end, begin:end] = torch.ones(length, length).tril().bool()
            begin = end
    mask = torch.zeros(ROWS, 1, LENGTH, LENGTH, dtype=torch.float64)
    return {"position_ids": positions, "attention_mask": mask.masked_fill(~allowed, -1e30)}


def reference(model, probe, documents):
    model = model.double()
    tokens = probe["input_ids"]
    arguments = packed_arguments(documents) if documents else {}
    logits = model(input_ids=tokens, **arguments).logits
    labels = torch.where(probe["loss_mask"].bool(), tokens, -100)[:, 1:]
    loss = torch.nn.functional.cross_entropy(
        logits[:, :-1].reshape(-1, VOCABULARY), labels.reshape(-1), ignore_index=-100
    )
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    norm = torch.sqrt(sum(gradient.square().sum() for gradient in gradients.values()))
    return logits.detach(), loss.item(), norm.item(), gradients


def compare(ours, logits, loss, norm, gradients, documents):
    """The worst quotient of difference and tolerance for each quantity."""
    difference = (ours["logits"].double() - logits).abs()
    if documents:  # what padding computes is nobody's business
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
        "logits": difference.max().item() / LOGITS,
        "loss": abs(ours["loss"].item() - loss) / loss / LOSS,
        "gradient norm": abs(ours["gradient_norm"].item() - norm) / norm / GRADIENT_NORM,
        "gradient of " + max(apart, key=apart.get): max(apart.values()) / GRADIENT,
    }


def change_config(directory, fields):
    path = directory / "config.json"
    config = json.loads(path.read_text())
    config.update(fields)
    path.write_text(json.dumps(config))


def run_case(probe_program, name, options, seed, lies=None):
    options = dict(options)
    documents = options.pop("documents", None)
    bare_names = options.pop("bare_names", False)
    only_head = options.pop("only_head", False)
    with tempfile.TemporaryDirectory() as folder:
        directory = pathlib.Path(folder)
        model = random_model(options, seed)
        save_model(model, directory, bare_names, only_head)
        change_config(directory, lies or {})
        probe = make_probe(directory, documents, seed)
        subprocess.run([probe_program, directory], check=True)
        ours = load_file(directory / "result.safetensors")
        quotients = compare(ours, *reference(model, probe, documents), documents)
    agrees = all(quotient <= 1 for quotient in quotients.values())
    as_expected = agrees != bool(lies)
    shown = ", ".join(f"{quantity} {quotient:.3f}" for quantity, quotient in quotients.items())
    print(f"{'ok    ' if as_expected else 'FAILED'} {name} (seed {seed}), of tolerance: {shown}")
    return as_expected


def main():
    if len(sys.argv) > 1:
        program = sys.argv[1]
    else:
        program = pathlib.Path(os.environ["STRAIT_BUILD"]) / "bin" / "model_probe"
    results = [run_case(program, name, case, seed) for seed, (name, case) in enumerate(CASES.items())]
    print("these must be noticed:")
    results += [run_case(program, name, case, 1, lies) for name, (case, lies) in LIES.items()]
    print(f"{sum(results)} of {len(results)} as expected of transformers {transformers.__version__}")
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
