#pragma once

#include <cstdint>
#include <string>

namespace strait::base {

// Names one process for good: its pid alone may be another process's tomorrow.
struct ProcessIdentity {
  std::int64_t pid = 0;
  std::uint64_t started = 0;  // clock ticks from boot, from /proc
  std::string host;           // on which it runs
  std::string boot;           // boot id of that host

  static ProcessIdentity own();

  bool operator==(const ProcessIdentity&) const = default;
  bool here() const;    // on this host, so that the process can be looked up
  bool exists() const;  // here, and neither ended nor a zombie
  // Exists, but a signal (SIGSTOP, Ctrl-Z) has stopped it.
  bool suspended() const;
};

std::string own_host();

// Reaches no other process that has got the pid meanwhile, where the kernel has pidfds. Returns 0
// or an errno; ESRCH: the process has ended, or is not here.
int send_signal(const ProcessIdentity& process, int signal);

}  // namespace strait::base
