#include "launcher/verbs/verb_status.h"

#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "framework/store/bounded_json.h"
#include "launcher/console/boundary_table.h"
#include "launcher/console/remaining_time.h"
#include "launcher/console/sync_table.h"
#include "launcher/run/run_directory.h"
#include "launcher/user_error.h"

namespace strait::launcher {
namespace {

using nlohmann::json;

std::optional<json> read_status(const std::filesystem::path& run) {
  const std::filesystem::path path = RunDirectory::status(run);
  std::ifstream in(path);
  if (!in) return std::nullopt;
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  try {
    return store::parse_bounded_json(text);
  } catch (const store::JsonError& error) {
    throw UserError(ExitCode::corrupt,
                    fmt::format("{} is damaged: {}", path.string(), error.what()));
  }
}

void print_processes(const json& status) {
  for (const json& process : status.at("processes")) {
    std::string doing = process.value("waits_for", "");
    if (doing.empty()) doing = process.value("phase", "starting");
    fmt::print("  stage {} on {} (pid {}): step {}, {}; last heard {:.0f} s ago\n",
               process.at("process").get<std::string>(), process.at("host").get<std::string>(),
               process.at("pid").get<std::int64_t>(), process.value("step", std::int64_t{0}), doing,
               process.at("silent_seconds").get<double>());
  }
}

void print_numbers(const json& status) {
  std::string line = fmt::format("  step {}/{}", status.at("step").get<std::int64_t>(),
                                 status.at("steps").get<std::int64_t>());
  if (status.at("loss").is_number()) {
    line += fmt::format(" · loss {:.4g}", status.at("loss").get<double>());
  }
  if (status.at("state") != "ended" && status.at("eta_seconds").is_number()) {
    line += " · ETA " + clock_text(status.at("eta_seconds").get<double>());
  }
  if (status.at("checkpoint").is_number()) {
    line += fmt::format(" · checkpoint at step {}", status.at("checkpoint").get<std::int64_t>());
  }
  fmt::print("{}\n", line);
}

// Of the last step. A status of an earlier build has none.
void print_boundaries(const json& status) {
  std::vector<BoundaryStep> boundaries;
  for (const json& one : status.value("boundaries", json::array())) {
    boundaries.push_back(boundary_step_from(one));
  }
  for (const std::string& line : boundary_table(boundaries)) fmt::print("  {}\n", line);
}

void print_sync(const json& status) {
  std::vector<SyncStep> processes;
  for (const json& one : status.value("sync", json::array())) {
    processes.push_back(sync_step_from(one));
  }
  for (const std::string& line : sync_table(processes)) fmt::print("  {}\n", line);
}

void print(const std::filesystem::path& run, const json& status,
           const std::optional<LiveRun>& live) {
  const auto state = status.at("state").get<std::string>();
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const double age = now - status.at("updated").get<double>();
  if (live) {
    fmt::print("{}: {} (process {}, since {}; told {:.0f} s ago)\n", run.string(), state, live->pid,
               live->since, age);
  } else if (state == "ended") {
    const json& outcome = status.at("outcome");
    const auto cause = outcome.at("cause").get<std::string>();
    fmt::print("{}: ended with code {} ({}){}{}\n", run.string(), outcome.at("code").get<int>(),
               outcome.at("meaning").get<std::string>(), cause.empty() ? "" : ": ", cause);
  } else {
    fmt::print(
        "{}: its launcher is gone, last heard of {:.0f} s ago while {}; go on with: "
        "strait resume {}\n",
        run.string(), age, state, run.string());
  }
  print_numbers(status);
  print_boundaries(status);
  print_sync(status);
  if (live) print_processes(status);
}

}  // namespace

ExitCode show_status(const std::filesystem::path& run, bool as_json) {
  const std::optional<LiveRun> live = RunDirectory::live(run);
  std::optional<json> status = read_status(run);
  if (!status && !live) {
    throw UserError(ExitCode::bad_input,
                    fmt::format("{} holds no run that has started; name the directory of one, such "
                                "as runs/NAME",
                                run.string()));
  }
  if (!status) {
    status = json{{"state", "preparing"},
                  {"step", 0},
                  {"steps", 0},
                  {"loss", nullptr},
                  {"eta_seconds", nullptr},
                  {"checkpoint", nullptr},
                  {"updated", 0.0},
                  {"processes", json::array()},
                  {"outcome", nullptr}};
  }
  if (as_json) {
    (*status)["live"] = live.has_value();
    if (live) (*status)["pid"] = live->pid;
    fmt::print("{}\n", status->dump(2, ' ', false, json::error_handler_t::replace));
    return ExitCode::done;
  }
  try {
    print(run, *status, live);
  } catch (const json::exception& error) {
    throw UserError(ExitCode::corrupt,
                    fmt::format("{} was not written by this build: {}",
                                RunDirectory::status(run).string(), error.what()));
  }
  return ExitCode::done;
}

}  // namespace strait::launcher
