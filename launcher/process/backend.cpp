#include "launcher/process/backend.h"

#include <fmt/format.h>

#include <csignal>

namespace strait::process {
namespace {

const char* signal_words(int signal) {
  switch (signal) {
    case SIGKILL:
      return "SIGKILL: somebody's kill, or the system was out of memory";
    case SIGSEGV:
      return "SIGSEGV: it touched memory that is not its own";
    case SIGABRT:
      return "SIGABRT: it found itself broken and stopped";
    case SIGBUS:
      return "SIGBUS: a mapped file shrank or the disk failed";
    case SIGILL:
      return "SIGILL: an instruction that this processor does not have";
    case SIGFPE:
      return "SIGFPE: a division by zero";
    case SIGTERM:
      return "SIGTERM: somebody asked it to end";
    case SIGINT:
      return "SIGINT: somebody interrupted it";
    default:
      return nullptr;
  }
}

}  // namespace

std::string ExitStatus::sentence() const {
  if (signal) {
    const char* words = signal_words(*signal);
    return words ? fmt::format("killed by signal {} ({})", *signal, words)
                 : fmt::format("killed by signal {}", *signal);
  }
  if (!lost.empty()) return lost;
  const int left_with = code.value_or(-1);
  const char* words = base::meaning(base::ExitCode{left_with});
  return words ? fmt::format("ended with code {} ({})", left_with, words)
               : fmt::format("ended with code {}", left_with);
}

base::ExitCode ExitStatus::exit_code() const {
  if (signal) {
    const bool own_fault = *signal == SIGSEGV || *signal == SIGABRT || *signal == SIGBUS ||
                           *signal == SIGILL || *signal == SIGFPE;
    return own_fault ? base::ExitCode::internal : base::ExitCode::peer_lost;
  }
  if (!lost.empty()) return base::ExitCode::peer_lost;
  const base::ExitCode left_with{code.value_or(0)};
  return left_with != base::ExitCode::done && base::meaning(left_with) ? left_with
                                                                       : base::ExitCode::internal;
}

ExitStatus Process::terminate(std::chrono::milliseconds grace) {
  ask_to_end();
  if (const auto status = wait_until(std::chrono::steady_clock::now() + grace)) return *status;
  kill();
  // Only a process that the kernel itself holds fast outlives SIGKILL; it is not ours to wait for.
  const auto status = wait_until(std::chrono::steady_clock::now() + std::chrono::seconds(5));
  return status.value_or(ExitStatus{std::nullopt, SIGKILL, ""});
}

std::vector<std::unique_ptr<Process>> Backend::start_all(const std::vector<Launch>& launches) {
  std::vector<std::unique_ptr<Process>> started;
  started.reserve(launches.size());
  for (const Launch& launch : launches) started.push_back(start(launch));
  return started;
}

}  // namespace strait::process
