"""The bench of simulated links runs from end to end on a tiny model. Times are not judged."""

import quick_run

if __name__ == "__main__":
    quick_run.check("simulated_links.py", ["forecast of the simulated run", "simulated: "])
