"""The bench of waiting threads runs from end to end on a tiny model. Times are not judged."""

import quick_run

if __name__ == "__main__":
    quick_run.check("waiting_threads.py", ["spin", "passive", "own", "load"])
