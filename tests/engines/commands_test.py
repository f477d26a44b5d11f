"""What the files of recipes/engines run, run here by three processes with the variables of their engine: the same recipe,
and the same bits, for all of them. Those of KILLED are run by ../hosts/engines_test.py, which kills a process, too."""

import os
import pathlib
import subprocess
import sys

import engines
import runs

try:
    import yaml  # noqa: F401: of engines.py
except ImportError as error:
    print(f"skipped: {error}; ./strait test installs it")
    sys.exit(77)

ADDRESS = "10.9.0.1"
# That the headless Services give to the first pods.
NAMES = "strait-node-0.strait strait-node-0-0.strait"
# A network of its own, in which the first node has an address and the cluster's names.
NETWORK = (f"ip link set lo up && ip link add node type veth peer name other && ip addr add {ADDRESS}/24 dev node && "
           "ip link set node up && ip link set other up && mount --bind \"$0\" /etc/hosts && exec \"$@\"")
KILLED = {"kubernetes-job.yaml", "skypilot.yaml"}
# What an engine sets on the node of a rank.
VARIABLES = {
    "jobset.yaml": {"JOB_COMPLETION_INDEX": "{rank}"},
    "trainjob.yaml": {"JOB_COMPLETION_INDEX": "{rank}", "PET_NODE_RANK": "{rank}", "PET_NNODES": "3",
                      "PET_NPROC_PER_NODE": "4", "PET_MASTER_ADDR": "strait-node-0-0.strait", "PET_MASTER_PORT": "29500"},
    "volcano.yaml": {"VC_TASK_INDEX": "{rank}"},
    "dstack.yaml": {"DSTACK_NODE_RANK": "{rank}", "DSTACK_NODES_NUM": "3", "DSTACK_MASTER_NODE_IP": ADDRESS},
}


class Commands(runs.RunCase):
    def test_every_other_file_starts_the_same_run(self):
        self.assertEqual({path.name for path in engines.FILES.glob("*.yaml")}, KILLED | set(VARIABLES))
        engines.expected(self)
        engines.secret(self.home)
        secret = (self.home / "secret").read_text().strip()
        for file, variables in VARIABLES.items():
            with self.subTest(file):
                nodes = []
                for rank in range(3):
                    own = {name: value.format(rank=rank) for name, value in variables.items()}
                    words = engines.words_of_file(file, own)
                    # Either way to give it.
                    own |= {"STRAIT_JOIN_SECRET": secret} if rank == 1 else {"STRAIT_JOIN_SECRET_FILE": "secret"}
                    nodes.append(self.launch(*words, env={**os.environ, **own}))
                for node in nodes:
                    self.assertEqual(node.end(), 0, node.output())
                run = self.run_of("recipe")
                engines.assert_trained(self, run)
                run.path.rename(self.home / file)


def main():
    if "STRAIT_IN_NETWORK" in os.environ:
        runs.main()
    hosts = pathlib.Path(os.environ.get("TMPDIR", "/tmp"), f"strait-hosts-{os.getpid()}")
    hosts.write_text(f"127.0.0.1 localhost\n{ADDRESS} {NAMES}\n")
    try:
        network = ["unshare", "-m", "-n", "sh", "-c", NETWORK, str(hosts)]
        if subprocess.run([*network, "true"], capture_output=True).returncode != 0:
            print("skipped: this user may not make a network of its own (root can)")
            sys.exit(77)
        done = subprocess.run([*network, sys.executable, "-B", *sys.argv], env={**os.environ, "STRAIT_IN_NETWORK": "1"})
    finally:
        hosts.unlink()
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
