#include "launcher/base/backend.h"

#include <csignal>
#include <fstream>

#include "launcher/base/text.h"

namespace strait::base {
namespace {

const char* signal_meaning(int signal) {
  switch (signal) {
    case SIGKILL:
      return "SIGKILL: out of memory, or kill -9";
    case SIGSEGV:
      return "SIGSEGV: invalid memory access";
    case SIGABRT:
      return "SIGABRT: internal error";
    case SIGBUS:
      return "SIGBUS: a mapped file was truncated, or the disk failed";
    case SIGILL:
      return "SIGILL: instruction not supported by this processor";
    case SIGFPE:
      return "SIGFPE: division by zero";
    case SIGTERM:
      return "SIGTERM: requested exit";
    case SIGINT:
      return "SIGINT: interrupted";
    default:
      return nullptr;
  }
}

// The end of a log is read, not the whole: a log may have gigabytes. A line of a traceback may be
// long, and a single one must not push the others off the screen.
constexpr std::streamoff kTailBytes = std::streamoff{64} << 10;
constexpr std::size_t kLineBytes = 400;

std::string shown(const std::string& line) {
  const std::string text = printable(line);
  return text.size() > kLineBytes ? text.substr(0, kLineBytes) + "…" : text;
}

}  // namespace

std::string ExitStatus::sentence() const {
  if (signal) {
    const char* meaning = signal_meaning(*signal);
    return meaning ? fmt::format("killed by signal {} ({})", *signal, meaning)
                   : fmt::format("killed by signal {}", *signal);
  }
  if (!lost.empty()) return lost;
  const int exit_code = code.value_or(-1);
  const char* meaning = base::meaning(static_cast<ExitCode>(exit_code));
  return meaning ? fmt::format("ended with code {} ({})", exit_code, meaning)
                 : fmt::format("ended with code {}", exit_code);
}

ExitCode ExitStatus::exit_code() const {
  if (signal) {
    // A page of a mapped file that cannot be read.
    if (*signal == SIGBUS) return ExitCode::storage_io;
    // These signals are bugs of the process itself; others were sent to it from outside.
    const bool own_fault =
        *signal == SIGSEGV || *signal == SIGABRT || *signal == SIGILL || *signal == SIGFPE;
    return own_fault ? ExitCode::internal : ExitCode::peer_lost;
  }
  if (!lost.empty()) return ExitCode::peer_lost;
  // As a root cause, code 0 and unknown codes are internal errors.
  const auto own = static_cast<ExitCode>(code.value_or(0));
  return own != ExitCode::done && base::meaning(own) ? own : ExitCode::internal;
}

std::vector<std::unique_ptr<Process>> Backend::start_all(const std::vector<Launch>& launches) {
  std::vector<std::unique_ptr<Process>> started;
  started.reserve(launches.size());
  for (const Launch& launch : launches) started.push_back(start(launch));
  return started;
}

StartLog::StartLog(std::filesystem::path file) : file_(std::move(file)) {
  std::ifstream in(file_, std::ios::binary | std::ios::ate);
  if (in) begin_ = in.tellg();
}

std::vector<std::string> StartLog::tail(std::size_t count) const {
  std::ifstream in(file_, std::ios::binary | std::ios::ate);
  if (!in) return {};
  const std::streamoff size = in.tellg();
  const std::streamoff begin = size < begin_ ? 0 : begin_;  // another file has taken its place
  const std::streamoff from = std::max(begin, size - kTailBytes);
  in.seekg(from);
  std::vector<std::string> lines;
  std::string line;
  if (from > begin) std::getline(in, line);  // the first line is incomplete
  while (std::getline(in, line)) {
    if (!line.empty()) lines.push_back(shown(line));
  }
  if (lines.size() > count) {
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(count));
  }
  return lines;
}

std::string last_error(const std::vector<std::string>& log) {
  constexpr std::string_view kMarker = " error ";
  const auto found = std::find_if(log.rbegin(), log.rend(), [kMarker](const std::string& line) {
    return line.find(kMarker) != line.npos;
  });
  if (found == log.rend()) return "";
  return ": " + found->substr(found->find(kMarker) + kMarker.size());
}

}  // namespace strait::base
