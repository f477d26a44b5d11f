"""Links between hosts that cannot reach each other as planned: the other side listens, or the
launcher's host relays; the training is the same to the last bit."""

import json

import hosts
import namespace_host
import runs

PORTS = "47000-47099"


class Reach(hosts.HostsCase):
    COUNT = 2
    STEPS = {"pipeline.stages": 2, "train.steps": 6}

    def curves_match(self, run):
        local = self.train("local", self.STEPS)
        self.assert_same_bits((local.curve(), {}), (run.curve(), {}))

    def texts(self, run, event):
        return [one["text"] for one in run.events("stage_event") if one["name"] == event]

    @hosts.needs_namespaces
    def test_unreachable_pairs_train_over_relay(self):
        one, other = self.hosts
        one.refuse(other.address, other.address_6)
        other.refuse(one.address, one.address_6)
        run = self.train("relayed", self.over_ssh(self.STEPS))
        (text,) = self.texts(run, "relayed")
        self.assertIn("RELAYED: h0 and h1 cannot reach each other", text)
        self.assertIn("boundary 0.0>1.0", text)
        self.assertIn("of every step come in there and go out again", text)
        blocked = self.texts(run, "blocked")
        self.assertEqual(len(blocked), 2, blocked)
        self.assertTrue(all(f"open the TCP ports {PORTS}" in line for line in blocked), blocked)
        self.curves_match(run)

    def doctor_links(self):
        """Findings of the doctor about links: (kind, text)."""
        settings = self.over_ssh({**self.STEPS, "checkpoint.every": 1})
        out = self.ok("doctor", "--json", self.write_recipe("asked", settings))
        found = [(one["kind"], one["text"]) for one in json.loads(out) if one["where"] == "links"]
        for host in self.hosts:
            # Its agent ends after its timeout.
            kept = host.home / ".strait/runs"
            runs.wait_for("an end of the visit", lambda kept=kept: not list(kept.glob("*")), 10)
        return found

    @hosts.needs_namespaces
    def test_doctor_probes_links_and_cleans_up(self):
        one, other = self.hosts
        (well,) = self.doctor_links()
        self.assertEqual(well[0], "ok")
        # Which end listens, and at which address, the measured speeds decide.
        links = "boundary 0.0>1.0, tie 0.0>1.0"
        self.assertRegex(well[1], rf"^h\d reaches h\d at [\da-f.:]+: {links}$")
        one.refuse(other.address, other.address_6)
        other.refuse(one.address, one.address_6)
        found = self.doctor_links()
        self.assertEqual({kind for kind, _ in found}, {"note"}, found)
        self.assertTrue(any("RELAYED: h0 and h1 cannot reach" in text for _, text in found), found)

    @hosts.needs_namespaces
    def test_host_behind_firewall_connects_out(self):
        one, other = self.hosts
        # Only a firewall of the other would do this: h0 reaches no port of the range at h1.
        for family, address in (("-4", other.address), ("-6", other.address_6)):
            words = ["to", address, "ipproto", "tcp", "dport", PORTS, "blackhole"]
            namespace_host.ip(family, "rule", "add", "pref", "10", *words, inside=one.pid)
        run = self.train("turned", self.over_ssh(self.STEPS))
        self.assertEqual(self.texts(run, "relayed"), [])
        (blocked,) = self.texts(run, "blocked")
        self.assertIn("inbound TCP connections to host h1 at", blocked)
        self.curves_match(run)

    @hosts.needs_namespaces
    def test_hosts_with_ipv6_only(self):
        config = self.site.ssh.config.read_text()
        for host in self.hosts:
            config = config.replace(f"HostName {host.address}\n", f"HostName {host.address_6}\n")
            address = f"{host.address}/24"
            namespace_host.ip("address", "del", address, "dev", "eth0", inside=host.pid)
        six = self.home / "ssh6_config"
        six.write_text(config)
        run = self.train("six", self.over_ssh({**self.STEPS, "hosts.ssh_config": str(six)}))
        self.assertEqual(self.texts(run, "relayed"), [])
        self.curves_match(run)


if __name__ == "__main__":
    hosts.main()
