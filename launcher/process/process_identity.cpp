#include "launcher/process/process_identity.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "framework/file_descriptor.h"

namespace strait::process {
namespace {

// Field 22 of /proc/PID/stat; 0 when there is no such process, or when it is dead and only waits to
// be reaped. The name in field 2 may hold blanks and parentheses: counting starts behind the last
// one.
std::uint64_t start_ticks(std::int64_t pid) {
  std::ifstream in(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(in, line);
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(line.substr(name_end + 1));
  std::string field;
  fields >> field;  // the 3rd: its state
  if (field == "Z" || field == "X") return 0;
  for (int i = 4; i <= 22; ++i) fields >> field;
  try {
    return std::stoull(field);
  } catch (const std::logic_error&) {
    return 0;
  }
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
  return {::getpid(), start_ticks(::getpid()), own_host(), own_boot()};
}

bool ProcessIdentity::here() const { return boot == own_boot(); }

bool ProcessIdentity::exists() const {
  return here() && pid > 0 && started != 0 && start_ticks(pid) == started;
}

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

}  // namespace strait::process
