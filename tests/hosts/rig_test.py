"""The hosts of these tests are isolated, reachable and shaped, and leave nothing behind."""

import pathlib
import subprocess
import tempfile
import time
import unittest.mock

import hosts
import namespace_host
import runs
import sshd


class Rig(hosts.HostsCase):
    COUNT = 2
    INSTALLED = False

    def say(self, host, *words):
        done = subprocess.run(sshd.client(self.site.ssh, host, *words), capture_output=True, text=True, timeout=30)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_logins_have_own_homes(self):
        for host in self.hosts:
            self.assertEqual(self.say(host, 'echo "$HOME"').strip(), host.home_inside)
            self.say(host, f'echo {host.name} > "$HOME"/mark')
        marks = [(host.home / "mark").read_text().strip() for host in self.hosts]
        self.assertEqual(marks, ["h0", "h1"])
        for host in self.hosts:
            self.assertEqual(len(self.files_left(host)), 1, "the proof is blind to files")
            (host.home / "mark").unlink()

    @hosts.needs_namespaces
    def test_reports_processes_and_sockets(self):
        host = self.hosts[0]
        with subprocess.Popen(
            sshd.client(self.site.ssh, host, "echo up; exec cat"), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        ) as client:
            self.assertEqual(client.stdout.readline(), b"up\n")
            self.assertTrue(any("cat" in line for line in self.processes_on(host).values()))
            self.assertEqual(self.processes_on(self.hosts[1]), {})
            self.assertNotEqual(host.sockets(), [])
            client.stdin.close()
        self.wait_for_no_processes()

    @hosts.needs_namespaces
    def test_cut_refused_and_powered_off(self):
        first, second = self.hosts
        reach = lambda at, to: self.on_host(at, "bash", "-c", f"exec 3<>/dev/tcp/{to.address}/22", timeout=5)
        self.assertEqual(reach(first, second).returncode, 0)
        first.refuse(second.address, second.address_6)
        self.assertNotEqual(reach(first, second).returncode, 0)
        first.accept(second.address, second.address_6)
        self.assertEqual(reach(first, second).returncode, 0)
        self.assertTrue(hosts.answers(first))
        card = lambda: self.on_host(first, "ip", "-brief", "link", "show", "eth0").stdout.split()[2]
        before = card()
        first.cut()
        self.assertFalse(hosts.answers(first))
        first.heal()
        runs.wait_for("the healed cable", lambda: hosts.answers(first))
        first.power_off()
        self.assertFalse(hosts.answers(first))
        first.start(self.site.ssh)
        hosts.wait_until_up(first)
        self.assertEqual(self.processes_on(first), {})
        self.assertEqual(card(), before, "who knew it would have to forget its old card first")

    @hosts.needs_namespaces
    def test_shaped_cable_limits_the_rate(self):
        """Not faster than its rate."""
        host, size, rate = self.hosts[0], 4_000_000, 80
        host.shape(up_megabits=rate)
        begun = time.monotonic()
        words = sshd.client(self.site.ssh, host, f"head -c {size} /dev/zero")
        got = subprocess.run(words, capture_output=True, timeout=60).stdout
        taken = time.monotonic() - begun
        self.assertEqual(len(got), size)
        self.assertGreater(taken, size * 8 / (rate * 1e6) * 0.98)


class Folders(hosts.HostsCase):
    COUNT = 1
    INSTALLED = False

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="strait-test clone ")
        self.addCleanup(folder.cleanup)
        self.clone = pathlib.Path(folder.name)
        (self.clone / "program").write_text("here")
        kept = [*namespace_host.KEPT, self.clone]
        patch = unittest.mock.patch.object(namespace_host, "KEPT", kept)
        patch.start()
        self.addCleanup(patch.stop)
        super().setUp()

    @hosts.needs_namespaces
    def test_clone_below_tmp_with_spaces_is_mounted_at_every_start(self):
        host = self.hosts[0]
        read = lambda: self.on_host(host, "cat", self.clone / "program").stdout
        self.assertEqual(read(), "here")
        host.power_off()
        host.start(self.site.ssh)
        hosts.wait_until_up(host)
        self.assertEqual(read(), "here")


if __name__ == "__main__":
    hosts.main()
