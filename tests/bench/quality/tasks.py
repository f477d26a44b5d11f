"""What the quality bench trains on: packed rows from texts that the machine has, and records with
exact answers. Everything follows from the constants here and from the texts."""

import array
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sysconfig

ROW = 128  # tokens of a row; a token is a byte

BIBLE_DATA = pathlib.Path("/usr/lib/bible.data")
WORDS = ("river stone lamp garden winter copper voice market shadow ladder bread island window thunder "
         "silver basket meadow candle harbour feather mountain pocket hammer orchard blanket lantern "
         "kettle saddle pepper velvet button ribbon marble timber cotton ginger walnut pigeon turtle").split()
THINGS = 16  # of which there are facts: as many as a small model learns in three epochs
COLOURS = "red green blue white black yellow grey brown".split()
PLACES = "house field church forest valley city garden harbour".split()


class Unavailable(Exception):
    """A text that this machine does not have, and where it comes from."""


def english(file=None):
    """The text of a file, or the verses of the King James Bible, one per line."""
    if file is not None:
        return pathlib.Path(file).read_bytes()
    program = shutil.which("bible")
    if program is None or not BIBLE_DATA.exists():
        raise Unavailable("no English text: install the packages bible-kjv and bible-kjv-text, or name a plain "
                          "text file of 4 MB or more with --english")
    done = subprocess.run([program, "-f", "ge1:1-rev22:21"], stdin=subprocess.DEVNULL, capture_output=True, check=True)
    # Every verse is "Ge1:1 In the beginning ...".
    verses = [line.partition(b" ")[2] for line in done.stdout.splitlines()]
    return b"\n".join(verses) + b"\n"


def source_texts(package, folder, *endings):
    """(text to train on, text of other files) of the files below a folder."""
    files = sorted(file for ending in endings for file in folder.glob(ending))
    random.Random(5).shuffle(files)
    texts = [file.read_bytes() for file in files if file.is_file()]
    if len(texts) < 100:
        raise Unavailable(f"{folder} holds {len(texts)} of {endings}: install {package}")
    return b"".join(texts[24:]), b"".join(text[:8000] for text in texts[:24])


SOURCES = {
    # The standard library of the Python that runs us.
    "code": lambda: source_texts("python3", pathlib.Path(sysconfig.get_path("stdlib")), "*.py"),
    "headers": lambda: source_texts(
        "libc6-dev and libstdc++-12-dev", pathlib.Path("/usr/include"), "*.h", "linux/*.h", "c++/*/*/*.h",
    ),
    "perl": lambda: source_texts("perl-modules-5.36", pathlib.Path("/usr/share/perl"), "*/**/*.pm", "*/**/*.pl"),
}


def instructions(count):
    """Records about invented facts, no prompt twice, each with exactly one right answer. A number
    that does not matter makes a fact's prompts many, so that those of the evaluation are new."""
    draw = random.Random(7)
    facts = {word: [draw.choice(values) for values in (COLOURS, PLACES)] for word in WORDS[:THINGS]}
    records = {}
    while len(records) < count:
        word, number = draw.choice(WORDS[:THINGS]), draw.randrange(10, 100)
        colour, place = facts[word]
        prompt, answer = draw.choice(((f"{number}. What colour is the {word}? ", colour),
                                      (f"{number}. Where is the {word}? ", f"in the {place}"),
                                      (f"{number}. Write in capitals: {word} ", word.upper())))
        records[prompt] = {"prompt": prompt, "completion": answer + "\n"}
    return list(records.values())


def write_rows(path, text, count):
    """A token file of `count` full rows from all over the text, each a document of its own."""
    stride = len(text) // count
    if stride < ROW:
        raise Unavailable(f"{path.name} wants {count * ROW} bytes of text, there are {len(text)}")
    tokens = array.array("i")
    for start in range(0, count * stride, stride):
        tokens.extend(text[start : start + ROW])
    entry = {"dtype": "I32", "shape": [count, ROW], "data_offsets": [0, 4 * len(tokens)]}
    header = json.dumps({"input_ids": entry}).encode()
    header += b" " * (-len(header) % 8)
    # Whole or not at all: a --table may be made beside a bench that runs.
    part = path.with_suffix(f".{os.getpid()}")
    part.write_bytes(struct.pack("<Q", len(header)) + header + tokens.tobytes())
    part.replace(path)


def write_records(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
