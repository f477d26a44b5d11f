"""The same Llama in PyTorch, for trained.py: float32 weights, autocast to bfloat16, fused AdamW."""

import statistics
import time

import torch
from torch import nn
from torch.nn import functional


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return functional.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), 1e-5)


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), -1)
    return x * cos + turned * sin


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        hidden, inner = size["hidden"], size["inner"]
        self.heads, self.key_heads = size["heads"], size["key_heads"]
        self.width = hidden // self.heads
        linear = lambda inside, outside: nn.Linear(inside, outside, bias=False)  # noqa: E731
        self.query, self.out = linear(hidden, hidden), linear(hidden, hidden)
        self.key = linear(hidden, self.width * self.key_heads)
        self.value = linear(hidden, self.width * self.key_heads)
        self.gate, self.up, self.down = linear(hidden, inner), linear(hidden, inner), linear(inner, hidden)
        self.before, self.behind = Norm(hidden), Norm(hidden)

    def forward(self, x, cos, sin):
        normed = self.before(x)
        split = lambda y, heads: y.unflatten(-1, (heads, self.width)).transpose(1, 2)  # noqa: E731
        query = rotate(split(self.query(normed), self.heads), cos, sin)
        key = rotate(split(self.key(normed), self.key_heads), cos, sin)
        value = split(self.value(normed), self.key_heads)
        attended = functional.scaled_dot_product_attention(
            query, key.to(query.dtype), value.to(query.dtype), is_causal=True, enable_gqa=True
        )
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        normed = self.behind(x)
        return x + self.down(functional.silu(self.gate(normed)) * self.up(normed))


class Llama(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.table = nn.Embedding(size["vocabulary"], size["hidden"])
        self.blocks = nn.ModuleList(Block(size) for _ in range(size["blocks"]))
        self.norm = Norm(size["hidden"])
        self.head = nn.Linear(size["hidden"], size["vocabulary"], bias=False)
        width = size["hidden"] // size["heads"]
        angle = torch.arange(size["row"])[:, None] / 10000 ** (torch.arange(0, width, 2) / width)
        self.register_buffer("cos", torch.cat((angle, angle), -1).cos())
        self.register_buffer("sin", torch.cat((angle, angle), -1).sin())

    def forward(self, tokens):
        x = self.table(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = self.head(self.norm(x))[:, :-1].flatten(0, 1)
        return functional.cross_entropy(logits.float(), tokens[:, 1:].flatten())


def measure(size, tokens, device, compiled, warm, steps):
    """(median seconds of `steps` behind `warm` others, most bytes that tensors took)."""
    torch.manual_seed(1)
    rows = torch.tensor(tokens[: size["batch"] * size["row"]].tolist(), dtype=torch.long)
    rows = rows.view(size["batch"], size["row"]).to(device)
    model = Llama(size).to(device)
    forward = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    finish = torch.cuda.synchronize if device == "cuda" else lambda: None
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(warm + steps):
        finish()
        begin = time.perf_counter()
        parts = rows.split(size["micro_batch"])
        for part in parts:
            with torch.autocast(device, torch.bfloat16):
                loss = forward(part) / len(parts)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        finish()
        seconds.append(time.perf_counter() - begin)
    memory = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    return statistics.median(seconds[warm:]), memory
