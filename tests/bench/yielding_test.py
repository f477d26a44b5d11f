"""The bench of yielding links runs from end to end. Times are not judged."""

import quick_run

if __name__ == "__main__":
    quick_run.check("yielding.py", ["a flood alone:", "alone ", "beside a background"])
