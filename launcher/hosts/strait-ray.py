"""Runs one command on each of some nodes of a Ray cluster, in the environment that torchrun sets; `strait launch --engine
ray` starts it with `strait run RECIPE --rendezvous --resume-if-exists`.

A placement group holds one bundle on each node. What the first node prints is printed here, what others print with their
number. Ctrl-C, or SIGTERM, interrupts the command on the first node, which ends the others. A task whose node or worker
is lost is started again: the first one with all others, because its address may be another then.
"""

import argparse
import contextlib
import ctypes
import os
import queue
import secrets
import shutil
import signal
import subprocess
import sys
import threading

PR_SET_PDEATHSIG = 1
END_SECONDS = 60  # for the other nodes, after the first one has ended
LOST = (20, 21, 31, 70, 130)  # exit codes of a run that goes on from its checkpoint: docs/troubleshooting.md


class Refusal(Exception):
    """One sentence, for exit code 10."""


def listen_to_signals():
    """A worker that Ray kills takes its command along, which saves at SIGTERM. Ray's workers block SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def run_command(rank, nodes, first, secret, words, folder, lines):
    """The task of a node: the exit code of the command."""
    program = words[0] if os.path.exists(words[0]) else shutil.which("strait")
    if program is None:
        raise FileNotFoundError(f"node {rank} has neither {words[0]} nor a strait on its PATH")
    environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(nodes), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
                   "MASTER_ADDR": first, "STRAIT_JOIN_SECRET": secret}
    environment.pop("OMP_NUM_THREADS", None)  # of Ray: 1 for a task of one CPU; the recipe has pipeline.threads
    with subprocess.Popen([program, *words[1:]], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", preexec_fn=listen_to_signals) as process:
        reader = threading.Thread(target=lambda: [lines.put((rank, line)) for line in process.stdout])
        reader.start()
        while process.poll() is None:
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.5)  # in short turns: ray.cancel() interrupts no system call
            except KeyboardInterrupt:
                process.send_signal(signal.SIGINT)
        reader.join()
    return process.returncode


class Nodes:
    """The placement group, and the task on each of its nodes."""

    def __init__(self, ray, wanted, words):
        from ray.util.placement_group import placement_group
        from ray.util.queue import Queue
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy
        self.ray = ray
        self.count = wanted.nodes
        self.words = words
        self.secret = secrets.token_hex(32)
        self.wait = wanted.wait
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self.lines = Queue(actor_options={"num_cpus": 0, "scheduling_strategy": here})
        self.bundle = {"CPU": wanted.cpus, **({"GPU": wanted.gpus} if wanted.gpus else {})}
        self.group = placement_group([self.bundle] * self.count, strategy="STRICT_SPREAD")
        task = ray.remote(num_cpus=wanted.cpus, num_gpus=wanted.gpus, max_retries=0)(run_command)
        self.tasks_of = [task.options(scheduling_strategy=PlacementGroupSchedulingStrategy(self.group, rank))
                         for rank in range(self.count)]
        self.running = {}  # task -> rank
        self.interrupted = False

    def first_address(self):
        """Waits for all bundles, also for one whose node was lost."""
        from ray.util.placement_group import placement_group_table
        if not self.group.wait(self.wait):
            there = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
            able = sum(all(node.get(name, 0) >= amount for name, amount in self.bundle.items()) for node in there)
            raise Refusal(f"the Ray cluster has not had {self.count} nodes with {self.bundle} free within {self.wait} s; of "
                          f"its {len(there)} nodes {able} have as much at all")
        node = placement_group_table(self.group)["bundles_to_node_id"][0]
        return next(one["NodeManagerAddress"] for one in self.ray.nodes() if one["NodeID"] == node)

    def start(self, ranks):
        first = self.first_address()
        for rank in ranks:
            task = self.tasks_of[rank].remote(rank, self.count, first, self.secret, self.words, os.getcwd(), self.lines)
            self.running[task] = rank

    def interrupt(self):
        self.interrupted = True
        for task, rank in self.running.items():
            if rank == 0:
                self.ray.cancel(task)

    def print_lines(self, seconds):
        """Those that are there; waits for the first one."""
        from ray.util.queue import Empty
        try:
            while True:
                rank, line = self.lines.get(timeout=seconds)
                sys.stdout.write(line if rank == 0 else f"node {rank}: {line}")
                sys.stdout.flush()
                seconds = 0.01
        except (Empty, queue.Empty):
            pass

    def ended(self):
        """Rank and exit code of tasks that have ended; None: the node or the worker is lost."""
        done, _ = self.ray.wait(list(self.running), num_returns=len(self.running), timeout=0)
        for task in done:
            rank = self.running.pop(task)
            try:
                yield rank, self.ray.get(task)
            except (self.ray.exceptions.WorkerCrashedError, self.ray.exceptions.NodeDiedError):
                yield rank, None
            except self.ray.exceptions.TaskCancelledError:
                yield rank, 130  # before it began
            except self.ray.exceptions.RayTaskError as error:
                raise Refusal(str(error.cause)) from None

    def restart(self, rank):
        if rank > 0:
            self.start([rank])
            return
        for task in self.running:
            self.ray.cancel(task, force=True)
        self.ray.wait(list(self.running), num_returns=len(self.running))
        self.running.clear()
        self.start(range(self.count))

    def run(self, restarts):
        """The exit code of the first node, whose end is that of the run."""
        codes = {}
        self.start(range(self.count))
        while 0 not in codes:
            self.print_lines(0.5)
            for rank, code in list(self.ended()):
                is_lost = code is None or code < 0 or code in LOST
                if is_lost and restarts > 0 and not self.interrupted:
                    restarts -= 1
                    print(f"node {rank} {'was lost' if code is None else f'ended with {code}'}; starting again", flush=True)
                    self.restart(rank)
                else:
                    codes[rank] = LOST[0] if code is None else code
        left = list(self.running)
        for task in self.ray.wait(left, num_returns=len(left), timeout=END_SECONDS)[1] if left else []:
            self.ray.cancel(task, force=True)
        self.print_lines(0.5)
        return codes[0]


def interrupt_on_signal(nodes):
    def interrupt(number, frame):
        nodes.interrupt()

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)


def parse_words():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--cpus", type=float)
    parser.add_argument("--gpus", type=float)
    parser.add_argument("--wait", type=int)
    parser.add_argument("--restarts", type=int)
    parser.add_argument("words", nargs="+")
    return parser.parse_args()


def main():
    wanted = parse_words()
    try:
        try:
            import ray
        except ImportError:
            raise Refusal(f"{sys.executable} lacks the package ray; install it there, or set STRAIT_PYTHON to a Python that "
                          "has it") from None
        try:
            ray.init(address=os.environ.get("RAY_ADDRESS", "auto"), log_to_driver=False, logging_level="error")
        except ConnectionError:
            raise Refusal("there is no Ray cluster here; start it with ray start --head, or set RAY_ADDRESS") from None
        nodes = Nodes(ray, wanted, wanted.words)
        interrupt_on_signal(nodes)
        return nodes.run(wanted.restarts)
    except Refusal as refusal:
        print(f"strait: {refusal}", file=sys.stderr)
        return 10


if __name__ == "__main__":
    sys.exit(main())
