"""The bench of planned memory runs from end to end on a few cases. No memory is judged."""

import quick_run

if __name__ == "__main__":
    quick_run.check("memory_plan.py", ["one stage                 0.0", "lora on int4              0.0", "powersgd                  0.1"])
