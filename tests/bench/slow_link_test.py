"""The bench of a slow link runs from end to end on a tiny model. Times are not judged."""

import quick_run

if __name__ == "__main__":
    quick_run.check("slow_link.py", ["link: ", "6/6", "auto", "a step (bfloat16"], "--codecs", "6/6", "auto")
