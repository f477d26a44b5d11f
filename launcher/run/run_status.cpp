#include "launcher/run/run_status.h"

#include <charconv>
#include <fstream>
#include <system_error>

#include "framework/fields/bounded_json.h"
#include "framework/store/input_file.h"
#include "framework/store/step_folders.h"
#include "framework/store/store_error.h"
#include "launcher/base/command_name.h"
#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/run/run_directory.h"

namespace strait::run {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostStatusBytes = std::uint64_t{1} << 30;

std::string_view prefix_of(ReplicaRequest request) {
  return request == ReplicaRequest::leave ? "leave-" : "return-";
}

}  // namespace

void refuse_run_not_started(const fs::path& run) {
  if (!store::is_present(run / base::kPlanFile)) base::refuse_no_run(run);
  throw base::UserError(base::ExitCode::bad_input,
                        "the run of {} has not started; start it with: {}", run.string(),
                        run_again_command(run));
}

void refuse_not_live(const fs::path& run) {
  if (!store::is_present(run / base::kPlanFile)) base::refuse_no_run(run);
  throw base::UserError(base::ExitCode::bad_input, "no run is live in {}; see: {}", run.string(),
                        base::strait_command("status", run));
}

void refuse_foreign_status(const fs::path& run, const std::exception& error) {
  throw base::UserError(base::ExitCode::corrupt, "{} was not written by this build: {}",
                        RunDirectory::status(run).string(),
                        fields::plain_json_reason(error.what()));
}

std::optional<nlohmann::json> read_run_status(const std::filesystem::path& run) {
  const std::filesystem::path path = RunDirectory::status(run);
  if (!store::is_present(path)) return std::nullopt;
  const std::string text = store::read_text_file(path, kMostStatusBytes);
  try {
    nlohmann::json status = fields::parse_bounded_json(text);
    if (!status.is_object()) throw fields::JsonError("it is not an object");
    return status;
  } catch (const fields::JsonError& error) {
    throw base::UserError(base::ExitCode::corrupt,
                          "{} is damaged: {}. It only shows the state of the run: remove it; "
                          "resume does without it and writes it again",
                          path.string(), error.what());
  }
}

void request_replica(ReplicaRequest request, const fs::path& run, std::uint32_t replica) {
  const fs::path file = run / fmt::format("{}{}", prefix_of(request), replica);
  if (std::ofstream(file).good()) return;
  throw base::UserError(base::ExitCode::bad_input,
                        "cannot write the request to the run's launcher: {}", file.string());
}

std::vector<std::uint32_t> take_requests(ReplicaRequest request, const fs::path& run) {
  const std::string_view prefix = prefix_of(request);
  // A missing directory is not an error: the run may be moved while it is polled.
  std::vector<std::uint32_t> requested;
  std::vector<fs::path> entries;
  try {
    entries = store::entries_of(run);
  } catch (const store::StoreError&) {
    return requested;  // the caller polls again
  }
  for (const fs::path& entry : entries) {
    const std::string name = entry.filename().string();
    if (!name.starts_with(prefix)) continue;
    std::uint32_t replica = 0;
    const char* const end = name.data() + name.size();
    const auto read = std::from_chars(name.data() + prefix.size(), end, replica);
    if (read.ec != std::errc() || read.ptr != end) continue;
    std::error_code failed;
    fs::remove(entry, failed);
    requested.push_back(replica);
  }
  std::ranges::sort(requested);
  return requested;
}

}  // namespace strait::run
