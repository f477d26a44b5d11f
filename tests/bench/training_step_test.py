"""The bench of a training step runs from end to end on a tiny model. Times are not judged."""

import quick_run

if __name__ == "__main__":
    quick_run.check("training_step.py", ["gpt2-124m", "strait", "eager", "load"])
