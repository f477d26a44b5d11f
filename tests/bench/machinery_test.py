"""The bench runs from end to end on a tiny model and prints its tables. Times are not judged."""

import quick_run

if __name__ == "__main__":
    quick_run.check(
        "machinery.py",
        ["measured / forecast", "measured / replayed", "2 stages, 1.0: peak", "first step"],
    )
