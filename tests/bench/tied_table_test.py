"""The bench of tied tables runs from end to end on a tiny model. Times are not judged."""

import quick_run

if __name__ == "__main__":
    quick_run.check("tied_table.py", ["of both tables", "random", "memory"])
