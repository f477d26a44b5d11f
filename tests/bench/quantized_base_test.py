"""The bench of bases of few bits runs from end to end on a tiny model. Neither memory nor time is judged."""

import quick_run

if __name__ == "__main__":
    quick_run.check("quantized_base.py", ["2 stages, nf4   1.0", "of a float32 base", "fits for 6 GB"])
