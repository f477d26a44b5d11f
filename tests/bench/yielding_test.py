"""The bench of yielding links runs from end to end. Times are not judged."""

import quick_run

if __name__ == "__main__":
    quick_run.check("yielding.py", ["a flood alone:", "against a flood", "two in the background:", "alone ", "beside a background"])
