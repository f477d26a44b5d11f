#include "launcher/cli/run_list.h"

#include <fmt/chrono.h>

#include <ctime>

#include "framework/store/step_folders.h"
#include "framework/store/store_error.h"
#include "launcher/base/own_program.h"
#include "launcher/base/run_file_names.h"
#include "launcher/base/text.h"
#include "launcher/run/run_directory.h"
#include "launcher/run/run_status.h"

namespace strait::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kRunsFolder = "runs";

// How a run without a launcher is called.
std::string ended_state(const json& status) {
  if (status.at("state") != "ended") return "its launcher is gone";
  const json& outcome = status.at("outcome");
  if (outcome.at("code") != number(base::ExitCode::done)) {
    return "ended: " + outcome.at("meaning").get<std::string>();
  }
  if (!outcome.value("early", "").empty()) return "ended early";
  return outcome.at("stopped").get<bool>() ? "stopped" : "done";
}

void take_status(const json& status, ListedRun& run) {
  run.state = run.live ? status.at("state").get<std::string>() : ended_state(status);
  run.step = status.at("step").get<std::int64_t>();
  run.steps = status.at("steps").get<std::int64_t>();
  run.updated = status.at("updated").get<double>();
  if (const json loss = status.value("loss", json()); loss.is_number()) run.loss = loss;
}

ListedRun listed_run(const fs::path& path, bool live) {
  ListedRun run{path, live ? "preparing" : "not started", live, 0, 0, {}, 0};
  try {
    if (const auto status = run::read_run_status(path)) take_status(*status, run);
  } catch (const base::UserError&) {
    run.state = "its status.json is damaged";
  } catch (const store::StoreError&) {
    run.state = "its status.json cannot be read";
  } catch (const json::exception&) {
    run.state = "its status.json is of another build";
  }
  return run;
}

json as_json_line(const ListedRun& run) {
  return {{"run", run.path.string()},
          {"state", run.state},
          {"live", run.live},
          {"step", run.step},
          {"steps", run.steps},
          {"loss", run.loss ? json(*run.loss) : json()},
          {"updated", run.updated == 0 ? json() : json(run.updated)}};
}

std::string time_of_update(const ListedRun& run) {
  if (run.updated == 0) return "-";
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(static_cast<std::time_t>(run.updated)));
}

}  // namespace

std::vector<ListedRun> runs_in(const fs::path& folder) {
  std::error_code none;
  if (!fs::is_directory(folder, none)) return {};
  std::vector<ListedRun> runs;
  for (const fs::path& path : store::entries_of(folder)) {
    const bool live = run::RunDirectory::live(path).has_value();
    if (live || fs::exists(path / base::kPlanFile, none)) runs.push_back(listed_run(path, live));
  }
  std::ranges::sort(runs, [](const ListedRun& a, const ListedRun& b) {
    return a.updated != b.updated ? a.updated > b.updated : a.path < b.path;
  });
  return runs;
}

base::ExitCode list_runs(const std::string& verb, bool as_json) {
  const std::vector<ListedRun> runs = runs_in(kRunsFolder);
  if (as_json) {
    json list = json::array();
    for (const ListedRun& run : runs) list.push_back(as_json_line(run));
    fmt::print("{}\n", list.dump(2, ' ', false, json::error_handler_t::replace));
    return base::ExitCode::done;
  }
  if (runs.empty()) {
    fmt::print("there are no runs here; copy an example recipe to begin with: {} init\n",
               base::command_name());
    return base::ExitCode::done;
  }
  std::size_t widest = 0;
  std::size_t widest_state = 0;
  for (const ListedRun& run : runs) {
    widest = std::max(widest, run.path.string().size());
    widest_state = std::max(widest_state, run.state.size());
  }
  for (const ListedRun& run : runs) {
    const std::string loss = run.loss ? fmt::format("loss {:.4g}", *run.loss) : "";
    fmt::print("{:<{}}  {:<19}  {:<{}}  step {}/{}  {}\n", base::printable(run.path.string()),
               widest, time_of_update(run), base::printable(run.state), widest_state, run.step,
               run.steps, loss);
  }
  fmt::print("show one: {}\n", base::strait_command(verb, runs.front().path));
  return base::ExitCode::done;
}

}  // namespace strait::cli
