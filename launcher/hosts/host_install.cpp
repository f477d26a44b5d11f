#include "launcher/hosts/host_install.h"

#include <sys/utsname.h>

#include <sstream>

#include "framework/store/step_folders.h"
#include "launcher/base/errors.h"
#include "launcher/base/own_program.h"
#include "launcher/base/piped_process.h"
#include "launcher/base/text.h"
#include "launcher/hosts/ssh_session.h"

namespace strait::hosts {

namespace {

namespace fs = std::filesystem;

constexpr auto kTraceLimit = std::chrono::seconds(30);  // for the loader to list libraries
constexpr std::size_t kHashDigits = 64;
constexpr auto kHashLimit = std::chrono::minutes(5);  // about 1 GB of libraries on a slow disk

// strait-stage is started, and executes strait-stage-torch for what needs libtorch. A custom
// program may contain both.
constexpr const char* kHalves[] = {"strait-stage", "strait-stage-torch"};

std::string output_of(const std::vector<std::string>& argv, std::chrono::seconds limit) {
  base::ProgramResult answer = base::run_program(argv, limit);
  if (answer.succeeded()) return std::move(answer.out);
  throw base::UserError(base::ExitCode::bad_input, "{}: {}", argv[0], answer.error_line());
}

fs::path stage_in(const fs::path& programs) {
  fs::path program = programs / "strait-stage";
  if (!fs::exists(program)) {
    throw base::UserError(base::ExitCode::bad_input,
                          "there is no {}; build it, or install strait as a whole",
                          program.string());
  }
  const std::string own = fmt::format("strait-stage {}\n", base::build_id());
  const std::string there = output_of({program.string(), "--version"}, kTraceLimit);
  if (there != own) {
    throw base::UserError(base::ExitCode::mismatch,
                          "{} is {}, but this is {}; build both from the same sources",
                          program.string(), base::printable(there.substr(0, there.find('\n'))),
                          own.substr(0, own.size() - 1));
  }
  return program;
}

// Uses sha256sum, as the hosts do when they verify the files.
void add_hashes(std::vector<BuildFile>& files) {
  std::vector<std::string> argv = {"sha256sum", "--"};
  for (const BuildFile& file : files) argv.push_back(file.from.string());
  std::istringstream lines(output_of(argv, kHashLimit));
  for (BuildFile& file : files) {
    std::string line;
    if (!std::getline(lines, line) || line.size() < kHashDigits) {
      throw base::UserError(base::ExitCode::storage_io,
                            "sha256sum printed no hash of " + file.from.string());
    }
    // sha256sum starts the line with a backslash if the name has a newline or a backslash.
    file.hash = line.substr(line.front() == '\\' ? 1 : 0, kHashDigits);
    file.size = fs::file_size(file.from);
  }
}

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
        throw base::UserError(base::ExitCode::storage_full,
                              "the disk of {} is full: the build does not fit into ~/.strait "
                              "there; make room and install again",
                              target_.host);
      }
      throw ssh_failure(target_.host, target_.config, *status, ssh_.errors());
    }
    throw base::UserError(base::ExitCode::stalled, "{} {}", target_.host, waited_for);
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
        "{} is a {} machine, this build is for {}; all hosts of a run need the same", target_.host,
        base::printable(theirs), ours.machine);
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
                          "tar cannot read this build to send it to {}: {}", target_.host,
                          base::printable(tar.errors()));
  }

  bool read_result() {
    auto deadline = Clock::now() + kCheckLimit;
    for (std::string line; ssh_.read_line(line, deadline) == ReadResult::line;) {
      if (line == "strait-install-waits") deadline = Clock::now() + kCheckLimit;
      if (line == "strait-install-busy") {
        throw base::UserError(base::ExitCode::stalled,
                              "{} has waited half an hour for another installation into the same "
                              "home; install again when that has ended",
                              target_.host);
      }
      if (line == "strait-install-done") return true;
      if (line.starts_with("strait-install-torn ")) return false;
      if (const auto other = text_after(line, "strait-install-other "); !other.empty()) {
        throw base::UserError(base::ExitCode::mismatch,
                              "the program sent to {} prints {}, not strait-stage {}; was it "
                              "rebuilt meanwhile? install again",
                              target_.host, base::printable(other), base::build_id());
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

std::vector<std::pair<std::string, std::string>> loaded_libraries(const std::string& trace) {
  std::vector<std::pair<std::string, std::string>> found;
  std::istringstream lines(trace);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find_first_not_of(" \t");
    const std::size_t arrow = line.find(" => ");
    // A line without an arrow is the kernel's library or the loader; the host has its own.
    if (first == line.npos || arrow == line.npos) continue;
    const std::size_t address = line.rfind(" (0x");
    const std::string path =
        line.find("not found", arrow) == line.npos
            ? line.substr(arrow + 4, address == line.npos ? line.npos : address - arrow - 4)
            : "";
    found.emplace_back(line.substr(first, arrow - first), path);
  }
  return found;
}

bool is_systems_own(const std::string& library) {
  constexpr std::array<std::string_view, 16> kOwn = {
      "linux-vdso.so", "ld-linux",  "libc.so.",      "libm.so.",       "libmvec.so.", "libdl.so.",
      "libpthread.so", "librt.so.", "libresolv.so.", "libutil.so.",    "libanl.so.",  "libnsl.so.",
      "libnss_",       "libcuda.",  "libnvidia-",    "libBrokenLocale"};
  return std::ranges::any_of(kOwn, [&](std::string_view own) { return library.starts_with(own); });
}

std::vector<fs::path> loaded_on_demand(const fs::path& library) {
  const std::string name = library.filename().string();
  const bool of_torch = name == "libtorch_cuda.so";
  const bool of_nvidia = library.string().find("/nvidia/") != std::string::npos;
  std::vector<fs::path> found;
  if (!of_torch && !of_nvidia) return found;
  for (const fs::path& entry : store::entries_of(library.parent_path())) {
    const std::string other = entry.filename().string();
    const bool wanted = of_torch
                            ? other == "libtorch_cuda_linalg.so" || other == "libcaffe2_nvrtc.so"
                            : other.find(".so") != std::string::npos;
    if (wanted && other != name) found.push_back(entry);
  }
  std::ranges::sort(found);
  return found;
}

bool Build::has_cuda() const {
  return std::ranges::any_of(
      files, [](const BuildFile& file) { return file.to.starts_with("lib/libtorch_cuda.so"); });
}

fs::path programs_of_other_kind(const fs::path& programs, bool has_cuda) {
  return programs.parent_path().parent_path() / (has_cuda ? "cpu" : "cuda") / "bin";
}

std::size_t build_for_host(const std::vector<Build>& builds, bool host_has_gpu) {
  const auto fitting = std::ranges::find(builds, host_has_gpu, &Build::has_cuda);
  return fitting == builds.end() ? 0 : static_cast<std::size_t>(fitting - builds.begin());
}

Build build_in(const fs::path& programs) {
  const fs::path program = stage_in(programs);
  std::vector<BuildFile> files;
  std::string traces;
  for (const char* half : kHalves) {
    const fs::path file = program.parent_path() / half;
    if (!fs::exists(file)) continue;
    files.push_back({file, fmt::format("libexec/{}", half), "", 0});
    // The program loads libtorch_cuda.so itself. The loader ignores it if it finds none.
    traces += output_of(
        {"env", "LD_PRELOAD=libtorch_cuda.so", "LD_TRACE_LOADED_OBJECTS=1", file.string()},
        kTraceLimit);
  }
  std::map<std::string, fs::path> libraries;
  for (const auto& [name, path] : loaded_libraries(traces)) {
    if (is_systems_own(name)) continue;
    if (path.empty()) {
      throw base::UserError(base::ExitCode::bad_input,
                            "{} needs {}, which is not on this machine either", program.string(),
                            name);
    }
    libraries.emplace(name, path);
    for (const fs::path& late : loaded_on_demand(path)) {
      libraries.emplace(late.filename().string(), late);
    }
  }
  for (const auto& [name, path] : libraries) files.push_back({path, "lib/" + name, "", 0});
  add_hashes(files);
  return {std::move(files)};
}

Installed install_on_host(const InstallTarget& target, const std::vector<Build>& builds,
                          const InstallProgress& progress) {
  std::optional<Installed> installed = Installation(target, builds).run(progress);
  if (!installed) installed = Installation(target, builds).run(progress);
  if (!installed) {
    throw base::UserError(
        base::ExitCode::storage_io,
        "{} damages what is written to its ~/.strait twice in a row; see to its disk", target.host);
  }
  // Checks that a run can start an agent there.
  SshSession(SshTarget{target.host, target.config, ""})
      .check_build(Clock::now() + kInstallCallLimit);
  return *installed;
}

}  // namespace strait::hosts
