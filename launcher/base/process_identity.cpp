#include "launcher/base/process_identity.h"

#include <fmt/format.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "framework/file_descriptor.h"

namespace strait::base {
namespace {

// Fields 3 and 22 of /proc/PID/stat.
struct ProcessState {
  std::string letter;               // empty: there is no such process
  std::uint64_t started_ticks = 0;  // 0: the same, or it is dead and only waits to be reaped
};

// The name in field 2 may hold blanks and parentheses: counting starts after the last one.
ProcessState state_of(std::int64_t pid) {
  std::ifstream in(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(in, line);
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream fields(line.substr(name_end + 1));
  ProcessState state;
  fields >> state.letter;
  if (state.letter == "Z" || state.letter == "X") return state;
  std::string field;
  for (int i = 4; i <= 22; ++i) fields >> field;
  try {
    state.started_ticks = std::stoull(field);
  } catch (const std::logic_error&) {
    return {};
  }
  return state;
}

// Equal for all processes of a boot of this host; different after every boot.
std::string own_boot() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(in, boot);
  return boot;
}

}  // namespace

std::string own_host() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

ProcessIdentity ProcessIdentity::own() {
  return {::getpid(), state_of(::getpid()).started_ticks, own_host(), own_boot()};
}

bool ProcessIdentity::here() const { return boot == own_boot(); }

bool ProcessIdentity::exists() const {
  return here() && pid > 0 && started != 0 && state_of(pid).started_ticks == started;
}

bool ProcessIdentity::suspended() const { return exists() && state_of(pid).letter == "T"; }

int send_signal(const ProcessIdentity& process, int signal) {
  const auto pid = static_cast<int>(process.pid);
  const FileDescriptor pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  // Looked at with the pidfd open: until then the pid could get another process.
  if (!process.exists()) return ESRCH;
  const bool sent = pidfd.open()
                        ? ::syscall(SYS_pidfd_send_signal, pidfd.number(), signal, nullptr, 0) == 0
                        : ::kill(pid, signal) == 0;
  return sent ? 0 : errno;
}

}  // namespace strait::base
