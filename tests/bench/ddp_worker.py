"""One of several processes that train the same model as data parallel replicas with PyTorch's
DistributedDataParallel over gloo, as people do today. Started by against_ddp.py.

usage: ddp_worker.py CONFIG RANK HOSTS ADDRESS:PORT HOOK STEPS ROWS MICRO_BATCH ROW

CONFIG is the text of a config.json. Prints the seconds of every step, one a line. HOOK: plain, fp16,
powersgd2.
"""

import json
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

SEED = 1


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        rows, tokens, width = x.shape
        parts = self.mix(self.norm_1(x)).view(rows, tokens, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, tokens, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config["n_embd"]
        self.tokens = nn.Embedding(config["vocab_size"], width)
        self.places = nn.Embedding(config["n_positions"], width)
        self.blocks = nn.ModuleList(Block(width, config["n_head"]) for _ in range(config["n_layer"]))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.tokens.weight.T  # the table is the head too


def set_hook(model, hook):
    if hook == "fp16":  # PyTorch has its bfloat16 hook for CUDA only; the bytes are the same
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif hook == "powersgd2":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif hook != "plain":
        sys.exit(f"no hook is called {hook}")


def train_step(model, optimizer, ids, micro_batch):
    pieces = ids.split(micro_batch)
    for number, piece in enumerate(pieces, 1):
        model.require_backward_grad_sync = number == len(pieces)
        logits = model(piece[:, :-1])
        loss = cross_entropy(logits.flatten(0, 1), piece[:, 1:].flatten()) / len(pieces)
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def main():
    config, rank, hosts, place, hook, steps, rows, micro_batch, row = sys.argv[1:]
    config = json.loads(config)
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    dist.init_process_group("gloo", init_method=f"tcp://{place}", rank=int(rank), world_size=int(hosts))
    # In one bucket for PowerSGD: over gloo its hook mixes up the collectives of several.
    bucket = 1000 if hook == "powersgd2" else None
    model = nn.parallel.DistributedDataParallel(Gpt2(config), bucket_cap_mb=bucket)
    set_hook(model, hook)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    torch.manual_seed(SEED + 1 + int(rank))
    for _ in range(int(steps)):
        ids = torch.randint(config["vocab_size"], (int(rows), int(row)))
        begin = time.monotonic()
        train_step(model, optimizer, ids, int(micro_batch))
        print(time.monotonic() - begin, flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
