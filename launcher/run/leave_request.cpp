#include "launcher/run/leave_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>
#include <system_error>

#include "launcher/user_error.h"

namespace strait::launcher {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRequest = "leave-";

}  // namespace

void ask_to_leave(const fs::path& run, std::uint32_t replica) {
  const fs::path file = run / fmt::format("{}{}", kRequest, replica);
  if (std::ofstream(file).good()) return;
  throw UserError(
      ExitCode::bad_input,
      fmt::format("cannot write {}, by which the run's launcher would be asked", file.string()));
}

std::vector<std::uint32_t> take_leave_requests(const fs::path& run) {
  std::vector<std::uint32_t> asked;
  std::error_code failed;
  for (const fs::directory_entry& entry : fs::directory_iterator(run, failed)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kRequest)) continue;
    std::uint32_t replica = 0;
    const char* const end = name.data() + name.size();
    const auto read = std::from_chars(name.data() + kRequest.size(), end, replica);
    if (read.ec != std::errc() || read.ptr != end) continue;
    fs::remove(entry.path(), failed);
    asked.push_back(replica);
  }
  std::ranges::sort(asked);
  return asked;
}

}  // namespace strait::launcher
