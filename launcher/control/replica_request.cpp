#include "launcher/control/replica_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "launcher/base/errors.h"

namespace strait::control {
namespace {

namespace fs = std::filesystem;

std::string_view prefix_of(ReplicaRequest request) {
  return request == ReplicaRequest::leave ? "leave-" : "return-";
}

}  // namespace

void ask_of_replica(ReplicaRequest request, const fs::path& run, std::uint32_t replica) {
  const fs::path file = run / fmt::format("{}{}", prefix_of(request), replica);
  if (std::ofstream(file).good()) return;
  throw base::UserError(
      base::ExitCode::bad_input,
      fmt::format("cannot write {}, by which the run's launcher would be asked", file.string()));
}

std::vector<std::uint32_t> take_requests(ReplicaRequest request, const fs::path& run) {
  const std::string_view prefix = prefix_of(request);
  std::vector<std::uint32_t> asked;
  std::error_code failed;
  for (const fs::directory_entry& entry : fs::directory_iterator(run, failed)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    std::uint32_t replica = 0;
    const char* const end = name.data() + name.size();
    const auto read = std::from_chars(name.data() + prefix.size(), end, replica);
    if (read.ec != std::errc() || read.ptr != end) continue;
    fs::remove(entry.path(), failed);
    asked.push_back(replica);
  }
  std::ranges::sort(asked);
  return asked;
}

}  // namespace strait::control
