"""The bench of checkpoints beside training runs from end to end on a tiny model. Times are not judged."""

import quick_run

if __name__ == "__main__":
    quick_run.check("beside_saving.py", ["stands still", "pause", "beside"])
