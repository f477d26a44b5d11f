#include "launcher/hosts/packed_jobs.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "framework/store/bounded_json.h"
#include "launcher/base/user_error.h"

namespace strait::hosts {
namespace {

using nlohmann::json;

// As long as there are hosts, in the job of every host.
constexpr const char* kCommonPart = "keeper_keys";

}  // namespace

std::string pack_jobs(const std::vector<KeeperJob>& jobs) {
  json packed = {{"jobs", json::array()}};
  for (const KeeperJob& job : jobs) {
    json one = json::parse(to_text(job));
    packed[kCommonPart] = std::move(one[kCommonPart]);
    one.erase(kCommonPart);
    packed["jobs"].push_back(std::move(one));
  }
  return packed.dump();
}

KeeperJob unpack_job(const std::string& text, std::size_t index) {
  try {
    const json packed = store::parse_bounded_json(text);
    const json& jobs = packed.at("jobs");
    if (index >= jobs.size()) {
      throw base::UserError(base::ExitCode::mismatch,
                      fmt::format("there are jobs for {} keepers, but this one is number {} of its "
                                  "Slurm step (counted from 0)",
                                  jobs.size(), index));
    }
    json one = jobs.at(index);
    one[kCommonPart] = packed.at(kCommonPart);
    return parse_keeper_job(one.dump());
  } catch (const store::JsonError& error) {
    throw base::UserError(base::ExitCode::mismatch,
                    fmt::format("these are no jobs of keepers: {}", error.what()));
  } catch (const json::exception& error) {
    throw base::UserError(base::ExitCode::mismatch,
                    fmt::format("these are no jobs of keepers of this build: {}", error.what()));
  }
}

}  // namespace strait::hosts
