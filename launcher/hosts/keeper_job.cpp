#include "launcher/hosts/keeper_job.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "framework/store/bounded_json.h"
#include "launcher/base/user_error.h"

namespace strait::hosts {
namespace {

using nlohmann::json;

json limit_or_null(const std::optional<double>& value) { return value ? json(*value) : json(); }

std::optional<double> limit_from(const json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<double>());
}

}  // namespace

std::string to_text(const KeeperJob& job) {
  return json{{"run", job.run.hex()},
              {"run_name", job.run_name},
              {"generation", job.generation},
              {"host", job.host},
              {"host_name", job.host_name},
              {"build", job.build},
              {"public_key", job.keys.public_key},
              {"secret_key", job.keys.secret_key},
              {"launcher_key", job.launcher_key},
              {"endpoints", job.endpoints},
              {"keeper_keys", job.keeper_keys},
              {"directory", job.directory},
              {"environment", job.environment},
              {"address", job.address},
              {"devices", job.devices},
              {"ports", job.ports},
              {"hold", job.hold},
              {"up_megabits", limit_or_null(job.up_megabits)},
              {"down_megabits", limit_or_null(job.down_megabits)}}
      .dump();
}

KeeperJob parse_keeper_job(const std::string& text) {
  try {
    const json from = store::parse_bounded_json(text);
    KeeperJob job;
    const auto run = net::RunId::parse(from.at("run").get<std::string>());
    if (!run) throw base::UserError(base::ExitCode::mismatch, "the run token names no run");
    job.run = *run;
    job.run_name = from.at("run_name");
    job.generation = from.at("generation");
    job.host = from.at("host");
    job.host_name = from.at("host_name");
    job.build = from.at("build");
    job.keys = {from.at("public_key"), from.at("secret_key")};
    job.launcher_key = from.at("launcher_key");
    job.endpoints = from.at("endpoints");
    job.keeper_keys = from.at("keeper_keys");
    job.directory = from.at("directory");
    job.environment = from.at("environment");
    job.address = from.at("address");
    job.devices = from.at("devices").get<std::vector<std::int64_t>>();
    job.ports = from.at("ports");
    job.hold = from.at("hold");
    job.up_megabits = limit_from(from.at("up_megabits"));
    job.down_megabits = limit_from(from.at("down_megabits"));
    return job;
  } catch (const store::JsonError& error) {
    throw base::UserError(base::ExitCode::mismatch, fmt::format("this is no run token: {}", error.what()));
  } catch (const json::exception& error) {
    throw base::UserError(base::ExitCode::mismatch,
                    fmt::format("this is no run token of this build: {}", error.what()));
  }
}

}  // namespace strait::hosts
