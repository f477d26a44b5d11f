"""The bench of zero bubble runs from end to end on a tiny model. Times are not judged; bits are."""

import quick_run

if __name__ == "__main__":
    quick_run.check(
        "zero_bubble.py", ["the same loss in every run: True", "simulated:", "zero_bubble"]
    )
