"""transfer_bench builds, runs, and counts bytes of both ways to many hosts. Speed is not judged here."""

import json

import quick_run

HOSTS, MEGABYTES, MEGABITS = 4, 8, 80


def main():
    sizes = [str(HOSTS), str(MEGABYTES), str(MEGABITS)]
    by = {way: json.loads(quick_run.built("transfer_bench", "hosts", way, "same", *sizes)) for way in ("single", "chain")}
    whole = HOSTS * MEGABYTES * 1_000_000
    assert all(counts["fetched"] == whole for counts in by.values()), by
    assert by["single"]["sent_by_launcher"] >= whole, "every host has the file from the launcher alone"
    assert by["chain"]["sent_by_launcher"] < whole, "each host has the file from the one before"


if __name__ == "__main__":
    main()
