#!/usr/bin/env python3
"""Writes dates.jsonl and dates-eval.jsonl beside itself: written-out dates to ISO dates.

    {"prompt": "March 5, 2021 -> ", "completion": "2021-03-05\\n"}

The task has exactly one right answer per prompt, so that anyone can judge samples at a glance. No
date of the evaluation file is in the training file, in any style. The same files come out on every
machine: the order comes from SHA-256, not from a library's random numbers.

Standard library only. Run it without arguments; --check compares instead of writing.
"""

import argparse
import datetime
import hashlib
import json
import pathlib
import sys

FIRST = datetime.date(1950, 1, 1)
LAST = datetime.date(2049, 12, 31)
TRAIN = 5600
EVAL = 200
SEED = "strait dates 1"

MONTHS = ("January February March April May June July August September October November "
          "December").split()


def ordinal(day):
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{day}{'th' if day in (11, 12, 13) else endings.get(day % 10, 'th')}"


STYLES = (
    lambda d, month: f"{month} {d.day}, {d.year}",
    lambda d, month: f"{d.day} {month} {d.year}",
    lambda d, month: f"{month[:3]} {ordinal(d.day)}, {d.year}",
    lambda d, month: f"the {ordinal(d.day)} of {month} {d.year}",
    lambda d, month: f"{d.day} {month[:3]} {d.year}",
)


def shuffled(items, purpose):
    """The items in an order that depends on the seed and the purpose alone."""
    def key(item):
        return hashlib.sha256(f"{SEED}/{purpose}/{item}".encode()).digest()
    return sorted(items, key=key)


def records(dates, purpose):
    for date in dates:
        style = shuffled(range(len(STYLES)), f"{purpose}/{date}")[0]
        written = STYLES[style](date, MONTHS[date.month - 1])
        yield {"prompt": f"{written} -> ", "completion": f"{date.isoformat()}\n"}


def files():
    days = (LAST - FIRST).days + 1
    dates = shuffled((FIRST + datetime.timedelta(n) for n in range(days)), "dates")
    for name, part in (("dates.jsonl", dates[:TRAIN]), ("dates-eval.jsonl", dates[-EVAL:])):
        yield name, "".join(json.dumps(record) + "\n" for record in records(part, name))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail unless the files are as made")
    check = parser.parse_args().check
    folder = pathlib.Path(__file__).resolve().parent
    for name, text in files():
        path = folder / name
        if not check:
            path.write_bytes(text.encode())
        elif not path.exists() or path.read_bytes() != text.encode():
            sys.exit(f"{path} is not what make_dates.py makes; run it without --check")


if __name__ == "__main__":
    main()
