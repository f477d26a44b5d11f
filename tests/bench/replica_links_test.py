"""The bench of replicas on a narrow link runs from end to end on a tiny model. Times are not judged."""

import quick_run

if __name__ == "__main__":
    quick_run.check(
        "replica_links.py", ["a step without sync", "cocktail", "powersgd"]
    )
