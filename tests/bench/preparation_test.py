"""The bench of prepared data runs from end to end on little text. Neither times nor memory are judged."""

import quick_run

if __name__ == "__main__":
    quick_run.check("preparation.py", ["first_fit: padding", "single: padding", "4 MB of text", "MiB held"])
