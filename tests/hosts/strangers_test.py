"""Strangers at every port of a run over hosts, of which two cannot reach each other, so that a link is relayed: those of
the stages, those of the launcher and its relay, and those on loopback that lead to the relay. Refused, and the run does
not notice. A campaign: processes/strangers_test.py attacks a run on one machine."""

import concurrent.futures
import ctypes
import shutil
import signal
import unittest

import hosts
import namespace_host
import runs
import strangers

_CLONE_NEWNET = 0x40000000


def in_network_of(pid, act, *words):
    """What act(*words) returns, called in the network of that process."""

    def call():
        with open(f"/proc/{pid}/ns/net") as space:
            if ctypes.CDLL(None, use_errno=True).setns(space.fileno(), _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        return act(*words)

    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(call).result()


class HostStrangers(strangers.Attacks, hosts.HostsCase):
    COUNT = 3
    INSTALLED = False  # but as shims
    RUN = {"pipeline.stages": 3, "train.steps": 100_000, "train.decay": "constant", "checkpoint.every": 100, "checkpoint.keep": 2,
           "checkpoint.home": "none", "hosts.restart": 1}

    def setUp(self):
        super().setUp()
        self.shims = {}
        for host in self.hosts:
            (host.home / ".strait").mkdir()
            shim = strangers.JobShim(host.home / ".strait", f"{host.home_inside}/.strait")
            self.shims[host.name] = shim
            self.addCleanup(shutil.rmtree, shim.jobs)

    def jobs(self):
        return {name: job for shim in self.shims.values() for name, job in shim.all_jobs().items()}

    def pids(self, launched):
        found = {"launcher": launched.process.pid}
        for host in self.hosts:
            for pid, line in self.processes_on(host).items():
                if "strait-stage" in line and "python" not in line:  # the shim feeds the stage, which listens
                    found[f"{'agent' if '--agent' in line else 'stage'} of {host.name}"] = pid
        return found

    def host_of(self, pid):
        return next((host for host in self.hosts if pid in self.processes_on(host)), None)

    def ports(self, launched):
        """As they are reached from the launcher's network, or on loopback of a host."""
        found = []
        for (address, port), pid in super().ports(launched):
            host = self.host_of(pid)
            if address in ("0.0.0.0", "::"):
                address = host.address if host else namespace_host.LAUNCHER
            found.append(((address, port), pid))
        return sorted(found)

    def reach(self, place, pid, act):
        if place[0] not in ("127.0.0.1", "::1"):
            return act(place, pid)
        return in_network_of(pid, act, place, pid)

    def server(self, launched, pid):
        jobs = self.jobs()
        host = self.host_of(pid)
        if host is None:
            return "coordinator", jobs["0.0"]["coordinator_key"]
        number = host.number
        if self.pids(launched).get(f"agent of {host.name}") == pid:
            number = self.COUNT - 1 - number  # the stage at the other end of the relayed link
        name = next(p["name"] for p in launched.run.plan()["processes"] if p["host_index"] == number)
        return name, jobs[name]["public_key"]

    @runs.campaign
    @hosts.needs_namespaces
    def test_strangers_at_hosts_and_relay_change_nothing(self):
        first, last = self.hosts[0], self.hosts[2]
        first.refuse(last.address, last.address_6)
        last.refuse(first.address, first.address_6)
        self.train("other", self.over_ssh({**self.RUN, "train.steps": 2, "checkpoint.every": 0}))
        others = self.jobs()
        devices = [namespace_host.BRIDGE, *(host.cable for host in self.hosts)]
        recorders = [strangers.Recorder(device) for device in devices]
        for recorder in recorders:
            self.addCleanup(recorder.stop)
        launched = self.start("loud", self.over_ssh(self.RUN))
        run = launched.run
        launched.at_step(3)
        self.assertEqual([e["name"] for e in run.events("stage_event") if e["name"] == "relayed"], ["relayed"])
        for recorder in recorders:
            recorder.stop()
        watch = self.watch_memory(launched)
        ports = self.ports(launched)
        self.assertTrue(any(place[0] == "127.0.0.1" for place, _ in ports), "no port leads to the relay")
        stages = {name: pid for name, pid in self.pids(launched).items() if name.startswith("stage")}
        listening = {f"stage of {self.hosts[int(link['listens'].split('.')[0])].name}" for link in run.plan()["links"]}
        self.assertEqual({name for name, pid in stages.items() if any(pid == at for _, at in ports)}, listening)
        self.assertEqual({self.host_of(pid) for _, pid in ports}, {None, *self.hosts})
        self.attack_all(launched, self.jobs()["0.0"], list(others.values())[:2], recorders)

        launched.end_by(signal.SIGTERM, 0)
        self.assertEqual(run.events("restart"), [])
        self.assert_same_as_quiet(run, self.over_ssh(self.RUN), watch.stop())


if __name__ == "__main__":
    unittest.TestCase.maxDiff = None
    hosts.main()
