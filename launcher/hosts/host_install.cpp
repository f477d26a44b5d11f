#include "launcher/hosts/host_install.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <optional>
#include <set>
#include <string_view>

#include "launcher/base/build_id.h"
#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/hosts/ssh_options.h"
#include "launcher/hosts/ssh_session.h"
#include "launcher/process/piped_process.h"

namespace strait::hosts {
namespace {

constexpr std::size_t kTarBlock = 512;

constexpr std::size_t kChecksumAt = 148;

void put(std::array<char, kTarBlock>& block, std::size_t at, std::string_view text) {
  std::ranges::copy(text, block.begin() + static_cast<std::ptrdiff_t>(at));
}

// The header of a regular file in a tar archive (POSIX ustar), executable by everyone. The bytes of
// the file follow, filled up with zeros to whole blocks; two blocks of zeros end the archive.
// `name` has at most 99 characters.
std::array<char, kTarBlock> tar_header(const std::string& name, std::uint64_t size) {
  std::array<char, kTarBlock> block{};
  put(block, 0, std::string_view(name).substr(0, 99));
  put(block, 100, "0000755");
  put(block, 108, "0000000");  // owner and group: root
  put(block, 116, "0000000");
  put(block, 124, fmt::format("{:011o}", size));
  put(block, 136, "00000000000");  // a fixed time: the same content is the same archive
  put(block, kChecksumAt, "        ");
  block[156] = '0';  // a regular file
  put(block, 257, std::string_view("ustar\00000", 8));
  unsigned sum = 0;
  for (const char byte : block) sum += static_cast<unsigned char>(byte);
  put(block, kChecksumAt, fmt::format("{:06o}", sum));
  block[kChecksumAt + 6] = '\0';
  return block;
}

// Zeros that fill the last block of so many bytes.
std::size_t tar_padding(std::uint64_t size) {
  return static_cast<std::size_t>((kTarBlock - size % kTarBlock) % kTarBlock);
}

using Clock = std::chrono::steady_clock;
using ReadResult = process::PipedProcess::ReadResult;

constexpr auto kInstallCallLimit = std::chrono::seconds(30);
constexpr auto kPieceTimeout = std::chrono::seconds(60);  // for the host to read 1 MiB
constexpr auto kCheckLimit = std::chrono::minutes(5);  // hashing and a first start on a slow disk
constexpr std::size_t kPieceBytes = 1 << 20;

// The script on the host: one constant line without single quotes, backslashes or newlines, so that
// every login shell passes it to sh unchanged. It prints the hashes that the host has, and reads
// the build's id, "hash path" lines up to "end", and a tar archive of the missing files, named by
// hash. Two builds stay, and those that a process of this host has mapped: a live run still starts
// stages of its build. Hosts may share a home: one at a time puts files in place, links and removes
// them, where there is flock (1: another one holds it); the others say every two seconds that they
// wait, for at most half an hour. What another host has removed since it was listed is sent again,
// like what is damaged. Of an installation that is cut off the files that are whole stay, unless
// they have filled the disk.
constexpr const char* kInstallCommand =
    "exec sh -c '"
    "set -eu; umask 022; root=$HOME/.strait; mkdir -p \"$root/content\" \"$root/builds\"; "
    "cd \"$root\"; me=$(uname -n).$$; in=incoming.$me; next=next.$me; "
    "keep() { mkdir -p content/$2; mv \"$1\" content/$2/data; }; "
    "keep_whole() { [ -d $in ] && head -c 1048576 /dev/zero > $in/probe 2> /dev/null || return 0; "
    "for f in $in/*; do h=${f##*/}; "
    "if echo \"$h  $f\" | sha256sum -c > /dev/null 2>&1; then keep \"$f\" $h; fi; done; }; "
    "trap \"keep_whole || :; rm -rf $in $next\" EXIT; trap \"exit 1\" HUP INT TERM; "
    "for old in incoming next; do "
    "find . -maxdepth 1 -name \"$old.*\" -mmin +1440 -exec rm -rf {} +; done; "
    "echo strait-install-here $(uname -m); "
    "if nvidia-smi -L 2> /dev/null | grep -q ^GPU; then echo strait-install-gpu; fi; "
    "for f in content/*/data; do h=${f#content/}; h=${h%/data}; "
    "if [ -e \"$f\" ] && [ ${#h} = 64 ]; then echo strait-install-has $h; fi; done; "
    "echo strait-install-asks; "
    "read -r id; mkdir $in $next $next/bin $next/lib $next/libexec; "
    "while read -r hash path; do if [ \"$hash\" = end ]; then break; fi; "
    "echo \"$hash  $path\"; done > $next/files; "
    "tar -xf - -C $in; cat > /dev/null; "
    "exec 9> install-lock; n=0; "
    "while s=0; flock -n 9 2> /dev/null || s=$?; [ $s = 1 ]; do "
    "n=$((n+1)); if [ $n -gt 900 ]; then echo strait-install-busy; exit 1; fi; "
    "echo strait-install-waits; sleep 2; done; "
    "for f in store/*; do if [ -e \"$f\" ]; then keep \"$f\" ${f#store/}; fi; done; rm -rf store; "
    "for f in $in/*; do if [ -e \"$f\" ]; then keep \"$f\" ${f##*/}; fi; done; "
    "while read -r hash path; do "
    "data=content/$hash/data; "
    "ln $data $next/$path 2> /dev/null || cp $data $next/$path || [ ! -e $data ]; "
    "if echo \"$hash  $next/$path\" | sha256sum -c > /dev/null 2>&1; then :; "
    "else rm -rf content/$hash; echo strait-install-torn $path; exit 1; fi; "
    "done < $next/files; "
    "said=$($next/bin/strait-stage --check 9>&- | head -n 1); "
    "if [ \"$said\" = \"strait-stage $id\" ]; then :; "
    "else echo strait-install-other $said; exit 1; fi; "
    "if cmp -s $next/files builds/$id/files; then touch builds/$id; "
    "else rm -rf builds/$id; mv $next builds/$id; fi; "
    "ln -s builds/$id/bin $in/bin; mv -T $in/bin bin; "
    "ls -1t builds | tail -n +3 | while read -r old; do "
    "if grep -Fqs \"/builds/$old/\" /proc/[0-9]*/maps; then :; else rm -rf builds/$old; fi; done; "
    "find content -maxdepth 2 -name data -type f -links 1 | while read -r f; do "
    "h=${f#content/}; h=${h%/data}; if [ ${#h} = 64 ]; then rm -rf content/$h; fi; done; "
    "echo strait-install-done'";

std::string text_after(const std::string& line, std::string_view marker) {
  return line.starts_with(marker) ? line.substr(marker.size()) : "";
}

// One attempt, over one ssh session.
class Installation {
 public:
  Installation(const InstallTarget& target, const std::vector<Build>& builds)
      : target_(target),
        builds_(builds),
        ssh_(ssh_argv(target.host, target.config, kInstallCommand, kTransferSilence)) {}

  // Empty: a file of an earlier build was damaged and has been removed; try again.
  std::optional<Installed> run(const InstallProgress& progress) {
    Installed installed;
    installed.has_gpu = read_present_files();
    const Build& build = builds_[build_for_host(builds_, installed.has_gpu)];
    installed.has_cuda = build.has_cuda();
    files_ = build.files;
    send(base::build_id() + std::string("\n") + list());
    std::uint64_t to_send = 0;
    for (const BuildFile* file : missing()) to_send += file->size;
    for (const BuildFile& file : files_) installed.all += file.size;
    for (const BuildFile* file : missing()) {
      send_file(*file, installed.sent, to_send, progress);
    }
    send(std::string(2 * kTarBlock, '\0'));
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

  void send_file(const BuildFile& file, std::uint64_t& sent, std::uint64_t to_send,
                 const InstallProgress& progress) {
    const auto header = tar_header(file.hash, file.size);
    send({header.data(), header.size()});
    if (file.from.empty()) {
      send(file.content);
      sent += file.size;
    } else {
      send_content(file, sent, to_send, progress);
    }
    send(std::string(tar_padding(file.size), '\0'));
  }

  void send_content(const BuildFile& file, std::uint64_t& sent, std::uint64_t to_send,
                    const InstallProgress& progress) {
    std::ifstream in(file.from, std::ios::binary);
    std::string piece(kPieceBytes, '\0');
    for (std::uint64_t left = file.size; left > 0;) {
      const auto wanted = static_cast<std::streamsize>(std::min<std::uint64_t>(left, piece.size()));
      if (!in.read(piece.data(), wanted)) {
        throw base::UserError(base::ExitCode::storage_io,
                              fmt::format("{} became shorter or unreadable while it was sent to {}",
                                          file.from.string(), target_.host));
      }
      send({piece.data(), static_cast<std::size_t>(wanted)});
      left -= static_cast<std::uint64_t>(wanted);
      sent += static_cast<std::uint64_t>(wanted);
      progress(sent, to_send);
    }
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
  process::PipedProcess ssh_;
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
