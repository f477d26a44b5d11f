#include "launcher/hosts/build_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "framework/store/step_folders.h"
#include "launcher/base/build_id.h"
#include "launcher/base/errors.h"
#include "launcher/base/piped_process.h"
#include "launcher/base/text.h"

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
  throw base::UserError(base::ExitCode::bad_input,
                        fmt::format("{}: {}", argv[0], answer.error_line()));
}

fs::path stage_in(const fs::path& programs) {
  fs::path program = programs / "strait-stage";
  if (!fs::exists(program)) {
    throw base::UserError(
        base::ExitCode::bad_input,
        fmt::format("there is no {}; build it, or install strait as a whole", program.string()));
  }
  const std::string own = fmt::format("strait-stage {}\n", base::build_id());
  const std::string there = output_of({program.string(), "--version"}, kTraceLimit);
  if (there != own) {
    throw base::UserError(
        base::ExitCode::mismatch,
        fmt::format("{} is {}, but this is {}; build both from the same sources", program.string(),
                    base::printable(there.substr(0, there.find('\n'))),
                    own.substr(0, own.size() - 1)));
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
      throw base::UserError(
          base::ExitCode::bad_input,
          fmt::format("{} needs {}, which is not on this machine either", program.string(), name));
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

}  // namespace strait::hosts
