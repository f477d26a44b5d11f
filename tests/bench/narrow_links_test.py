"""The bench of narrow links runs from end to end on a tiny model. Times are not judged."""

import quick_run

if __name__ == "__main__":
    quick_run.check(
        "narrow_links.py", ["it needs", "raw fp32", "delta 4/8"], "--codecs", "delta 4/8"
    )
