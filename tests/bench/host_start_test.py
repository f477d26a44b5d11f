"""The bench of starts over hosts runs and prints its table."""

import quick_run

quick_run.check("host_start.py", ["2 stages on as many hosts", "to the first step", "  connected", "CPU agents"])
