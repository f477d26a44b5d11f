"""The bench of many processes runs and prints its table."""

import quick_run

quick_run.check("many_processes.py", ["MiB a process", "        6  "])
