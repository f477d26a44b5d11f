"""What `strait prepare` costs: padding by way of packing, memory by size of the text, tokens per second of a processor.

usage: preparation.py [--bin FOLDER] [--tokens 2000000] [--megabytes 100] [--model DIR --data FILE.jsonl] [--quick]

With --model also tokens per processor second of a real tokenizer, the tokenizer process included.
"""

import json
import math
import os
import pathlib
import random
import re
import resource
import subprocess
import time

import machinery

LENGTHS = ((60, 0.6, 128), (200, 0.8, 512), (800, 0.6, 2048))  # median and sigma of bytes, row


def prepare(program, folder, *words):
    """(what it said, the most anonymous and all resident MiB, processor seconds)"""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(folder / "said", "w+") as said:
        process = subprocess.Popen([program, "prepare", *map(str, words)], stdout=said, cwd=folder,
                                   env={**os.environ, "STRAIT_CACHE": str(folder / "cache")})
        most = {"RssAnon": 0, "VmRSS": 0}
        while process.poll() is None:
            text = pathlib.Path("/proc", str(process.pid), "status").read_text()
            for name in most:
                found = re.search(name + r":\s+(\d+)", text)
                most[name] = max(most[name], int(found[1]) / 1024 if found else 0)
            time.sleep(0.01)
        assert process.returncode == 0
        said.seek(0)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return said.read(), most["RssAnon"], most["VmRSS"], spent


def records(path, tokens, median, sigma, longest):
    source = random.Random(1)
    with open(path, "w") as file:
        while tokens > 0:
            length = max(2, min(longest, int(median * math.exp(sigma * source.gauss(0, 1)))))
            file.write(json.dumps({"prompt": "p", "completion": "x" * (length - 2)}) + "\n")
            tokens -= length


def main():
    options = machinery.options_of(__doc__, tokens=2_000_000, megabytes=100, model=None, data=None)
    if options.quick:
        options.tokens, options.megabytes = 20_000, 4
    program = options.bin / "strait"
    with machinery.scratch() as folder:
        for median, sigma, row in LENGTHS:
            records(folder / "records.jsonl", options.tokens, median, sigma, row)
            for packing in ("first_fit", "decreasing", "single"):
                said = prepare(program, folder, "records.jsonl", "--row", row, "--packing", packing)[0]
                print(f"median {median}, sigma {sigma}, row {row}, {packing}: padding {re.search(r'[0-9.]+ %', said)[0]}")
        for megabytes in (options.megabytes // 4, options.megabytes):
            (folder / "text.txt").write_text("a line of text of forty characters ....\n" * (megabytes * 25_000))
            _, held, resident, spent = prepare(program, folder, "text.txt", "rows.safetensors", "--row", "512")
            size = (folder / "rows.safetensors").stat().st_size / 1e6
            print(f"{megabytes} MB of text, {size:.0f} MB of token file: {held:.0f} MiB held, {resident:.0f} MiB with mapped pages, {spent:.1f} s of a processor")
        if options.model:
            said, held, _, spent = prepare(program, folder, pathlib.Path(options.data).resolve(), "--row", "512", "--model", pathlib.Path(options.model).resolve())
            rows, row, padding = map(int, re.search(r"(\d+) rows of (\d+) tokens, \d+ targets, (\d+) padding", said).groups())
            tokens = rows * row - padding
            print(f"{tokens} tokens: {tokens / spent / 1e6:.2f} M/s of a processor, {held:.0f} MiB held beside the tokenizer process")


if __name__ == "__main__":
    main()
