"""The bench against DistributedDataParallel runs from end to end on a tiny model. Times are not judged."""

import quick_run

if __name__ == "__main__":
    quick_run.check("against_ddp.py", ["DDP PowerSGD rank 2", "cocktail", "load"])
