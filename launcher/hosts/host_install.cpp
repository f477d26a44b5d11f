#include "launcher/hosts/host_install.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>

#include "launcher/base/build_id.h"
#include "launcher/base/errors.h"
#include "launcher/base/piped_process.h"
#include "launcher/base/text.h"
#include "launcher/hosts/ssh_options.h"
#include "launcher/hosts/ssh_session.h"

namespace strait::hosts {
namespace {

using Clock = std::chrono::steady_clock;
using ReadResult = base::PipedProcess::ReadResult;

constexpr auto kInstallCallLimit = std::chrono::seconds(30);
constexpr auto kPieceTimeout = std::chrono::seconds(60);  // for the host to read 1 MiB
constexpr auto kCheckLimit = std::chrono::minutes(5);  // hashing and a first start on a slow disk
constexpr std::size_t kPieceBytes = 1 << 20;

// Runs install.sh, which comes first on stdin. The line is without single quotes inside,
// backslashes and newlines, so that every login shell passes it to sh unchanged. dd reads no byte
// more than it is told to: the rest of stdin is the script's.
std::string install_command() {
  return fmt::format("exec sh -c 'eval \"$(dd bs=1 count={} 2> /dev/null)\"'",
                     kInstallScript.size());
}

// Files by the last part of their paths. -T: an archive of no files is one, too.
std::vector<std::string> tar_argv(const std::vector<const BuildFile*>& files) {
  std::vector<std::string> argv = {"tar", "-chf", "-", "-T", "/dev/null"};
  for (const BuildFile* file : files) {
    argv.insert(argv.end(), {"-C", std::filesystem::absolute(file->from).parent_path().string(),
                             file->from.filename().string()});
  }
  return argv;
}

std::string text_after(const std::string& line, std::string_view marker) {
  return line.starts_with(marker) ? line.substr(marker.size()) : "";
}

// One attempt, over one ssh session.
class Installation {
 public:
  Installation(const InstallTarget& target, const std::vector<Build>& builds)
      : target_(target),
        builds_(builds),
        ssh_(ssh_argv(target.host, target.config, install_command(), kTransferSilence)) {}

  // Empty: a file of an earlier build was damaged and has been removed; try again.
  std::optional<Installed> run(const InstallProgress& progress) {
    Installed installed;
    send(kInstallScript);
    installed.has_gpu = read_present_files();
    const Build& build = builds_[build_for_host(builds_, installed.has_gpu)];
    installed.has_cuda = build.has_cuda();
    files_ = build.files;
    send(base::build_id() + std::string("\n") + list());
    for (const BuildFile* file : missing()) installed.sent += file->size;
    for (const BuildFile& file : files_) installed.all += file.size;
    send_missing(installed.sent, progress);
    ssh_.close_input();
    return read_result() ? std::optional(installed) : std::nullopt;
  }

 private:
  [[noreturn]] void install_fails(const std::string& waited_for) {
    if (const auto status = ssh_.wait_until(Clock::now() + std::chrono::seconds(3))) {
      if (ssh_.errors().find("No space left on device") != std::string::npos) {
        throw base::UserError(
            base::ExitCode::storage_full,
            fmt::format("the disk of {} is full: the build does not fit into ~/.strait "
                        "there; make room and install again",
                        target_.host));
      }
      throw ssh_failure(target_.host, target_.config, *status, ssh_.errors());
    }
    throw base::UserError(base::ExitCode::stalled, fmt::format("{} {}", target_.host, waited_for));
  }

  // Whether the host has a GPU.
  bool read_present_files() {
    bool has_gpu = false;
    const auto deadline = Clock::now() + kInstallCallLimit;
    for (std::string line;;) {
      if (ssh_.read_line(line, deadline) != ReadResult::line) {
        install_fails(fmt::format("has not answered within {} s; see how long this takes: {} true",
                                  kInstallCallLimit.count(),
                                  ssh_by_hand(target_.host, target_.config)));
      }
      if (line == "strait-install-asks") return has_gpu;
      has_gpu = has_gpu || line == "strait-install-gpu";
      if (const auto machine = text_after(line, "strait-install-here "); !machine.empty()) {
        check_machine(machine);
      }
      if (auto hash = text_after(line, "strait-install-has "); !hash.empty()) {
        present_hashes_.insert(std::move(hash));
      }
    }
  }

  void check_machine(const std::string& theirs) const {
    utsname ours{};
    ::uname(&ours);
    if (theirs == ours.machine) return;
    throw base::UserError(
        base::ExitCode::mismatch,
        fmt::format("{} is a {} machine, this build is for {}; all hosts of a run need "
                    "the same",
                    target_.host, base::printable(theirs), ours.machine));
  }

  // Each content once, even if several files have it.
  std::vector<const BuildFile*> missing() const {
    std::vector<const BuildFile*> lacking;
    std::set<std::string> seen = present_hashes_;
    for (const BuildFile& file : files_) {
      if (seen.insert(file.hash).second) lacking.push_back(&file);
    }
    return lacking;
  }

  std::string list() const {
    std::string lines;
    for (const BuildFile& file : files_) lines += fmt::format("{} {}\n", file.hash, file.to);
    return lines + "end\n";
  }

  void send(std::string_view bytes) {
    if (!ssh_.write(bytes, Clock::now() + kPieceTimeout)) {
      install_fails(fmt::format("has read nothing for {} s; install again, finished files are kept",
                                kPieceTimeout.count()));
    }
  }

  void send_missing(std::uint64_t size, const InstallProgress& progress) {
    base::PipedProcess tar(tar_argv(missing()));
    tar.close_input();
    std::uint64_t sent = 0;
    ReadResult got = ReadResult::line;
    while (got == ReadResult::line) {
      std::string piece;
      got = tar.read_bytes(piece, kPieceBytes, Clock::now() + kPieceTimeout);
      send(piece);
      sent += piece.size();
      progress(std::min(sent, size), size);
    }
    const auto ended = tar.wait_until(Clock::now() + kPieceTimeout);
    if (got == ReadResult::end && ended && ended->code == 0) return;
    throw base::UserError(base::ExitCode::storage_io,
                          fmt::format("tar cannot read this build to send it to {}: {}",
                                      target_.host, base::printable(tar.errors())));
  }

  bool read_result() {
    auto deadline = Clock::now() + kCheckLimit;
    for (std::string line; ssh_.read_line(line, deadline) == ReadResult::line;) {
      if (line == "strait-install-waits") deadline = Clock::now() + kCheckLimit;
      if (line == "strait-install-busy") {
        throw base::UserError(base::ExitCode::stalled,
                              fmt::format("{} has waited half an hour for another installation "
                                          "into the same home; install again when that has ended",
                                          target_.host));
      }
      if (line == "strait-install-done") return true;
      if (line.starts_with("strait-install-torn ")) return false;
      if (const auto other = text_after(line, "strait-install-other "); !other.empty()) {
        throw base::UserError(base::ExitCode::mismatch,
                              fmt::format("the program sent to {} prints {}, not strait-stage {}; "
                                          "was it rebuilt meanwhile? install again",
                                          target_.host, base::printable(other), base::build_id()));
      }
    }
    install_fails("has all files, but does not confirm them");
  }

  const InstallTarget& target_;
  const std::vector<Build>& builds_;
  std::vector<BuildFile> files_;  // of the build that fits
  base::PipedProcess ssh_;
  std::set<std::string> present_hashes_;
};

}  // namespace

Installed install_on_host(const InstallTarget& target, const std::vector<Build>& builds,
                          const InstallProgress& progress) {
  std::optional<Installed> installed = Installation(target, builds).run(progress);
  if (!installed) installed = Installation(target, builds).run(progress);
  if (!installed) {
    throw base::UserError(
        base::ExitCode::storage_io,
        fmt::format("{} damages what is written to its ~/.strait twice in a row; see to "
                    "its disk",
                    target.host));
  }
  // Checks that a run can start an agent there.
  SshSession(SshTarget{target.host, target.config, ""})
      .check_build(Clock::now() + kInstallCallLimit);
  return *installed;
}

}  // namespace strait::hosts
