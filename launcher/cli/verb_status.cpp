#include <fmt/chrono.h>

#include <ctime>

#include "launcher/base/machine.h"
#include "launcher/base/run_file_names.h"
#include "launcher/cli/command_line.h"
#include "launcher/cli/run_list.h"
#include "launcher/cli/saved_checkpoints.h"
#include "launcher/cli/status_text.h"
#include "launcher/cli/verbs.h"
#include "launcher/run/run_directory.h"
#include "launcher/run/run_status.h"

namespace strait::cli {
namespace {

using nlohmann::json;

// The run's plan, which says whether the rest of a checkpoint may lie on hosts. It may where the
// plan is not known: status only looks.
plan::Plan plan_of_status(const std::filesystem::path& run) {
  try {
    return read_run(run).plan;
  } catch (const std::exception&) {
    plan::Plan unknown;
    unknown.recipe.hosts.backend = recipe::BackendKind::ssh;
    unknown.recipe.checkpoint.home = recipe::CheckpointHome::none;
    return unknown;
  }
}

// Checkpoints that were complete once, newest first.
std::vector<SavedCheckpoint> committed_checkpoints(const std::filesystem::path& run,
                                                   const plan::Plan& plan) {
  std::vector<SavedCheckpoint> list = saved_checkpoints(run, plan);
  std::erase_if(list, [](const SavedCheckpoint& one) {
    return one.state == SavedCheckpoint::State::unfinished ||
           one.state == SavedCheckpoint::State::aside;
  });
  return list;
}

// Which checkpoints are here, and how much of them: the rest of one is on the run's hosts.
json checkpoints_here(const std::filesystem::path& run) {
  json list = json::array();
  for (const SavedCheckpoint& one : committed_checkpoints(run, plan_of_status(run))) {
    list.push_back({{"step", number(one.step)}, {"here", name_of_part(one.here)}});
  }
  return list;
}

// Empty: there is none.
std::string checkpoint_line(const std::filesystem::path& run) {
  const plan::Plan plan = plan_of_status(run);
  const bool on_hosts = recipe::stores_on_hosts(plan.recipe.hosts.backend);
  std::vector<std::string> parts;
  for (const SavedCheckpoint& one : committed_checkpoints(run, plan)) {
    const std::string where = one.here == store::Part::all ? "whole"
                              : !on_hosts
                                  ? fmt::format("damaged, or of another build: {}",
                                                base::strait_command("checkpoint verify", run))
                              : one.here == store::Part::weights ? "its weights, the rest on hosts"
                                                                 : "on hosts";
    parts.push_back(fmt::format("{} ({})", number(one.step), where));
  }
  return parts.empty() ? "" : fmt::format("checkpoints here: {}", fmt::join(parts, ", "));
}

// How to continue a run that has no launcher.
std::string resume_hint(const std::filesystem::path& run) {
  if (!committed_checkpoints(run, plan_of_status(run)).empty()) {
    return "resume with: " + base::strait_command("resume", run);
  }
  return "there is no checkpoint; begin again with: " + run::run_again_command(run);
}

// A run that `checkpoint copy` has made, until it is started. False: it is none.
bool show_copy(const std::filesystem::path& run, bool as_json) {
  std::error_code error;
  if (!std::filesystem::exists(run / base::kPlanFile, error)) return false;
  const plan::Plan plan = plan_of_status(run);
  const std::vector<SavedCheckpoint> list = committed_checkpoints(run, plan);
  if (list.empty()) return false;
  const SavedCheckpoint& newest = list.front();
  if (as_json) {
    const json status = {{"state", "not started"}, {"step", number(newest.step)},
                         {"steps", plan.steps},    {"checkpoint", number(newest.step)},
                         {"live", false},          {"checkpoints", checkpoints_here(run)}};
    fmt::print("{}\n", status.dump(2));
    return true;
  }
  fmt::print(
      "{}: a copy at step {} that has not been started; {}\n", run.string(), number(newest.step),
      newest.here == store::Part::all ? "resume it with: " + base::strait_command("resume", run)
                                      : "it holds only weights, for export, eval and generate");
  return true;
}

// Whether the status says how a start ended that was before the one of the live launcher.
bool is_of_former_start(const json& status, const base::LiveRun& live) {
  const json updated = status.value("updated", json());
  if (status.value("state", json()) != "ended" || !updated.is_number()) return false;
  const auto ended = static_cast<std::time_t>(updated.get<double>());
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(ended)) < live.since;
}

// Without an age where this machine's clock was set back since.
std::string update_text(double updated) {
  const double age = base::unix_time() - updated;
  return age >= 0
             ? fmt::format("{:.0f} s ago", age)
             : fmt::format("at {:%Y-%m-%d %H:%M:%S}, which this machine's clock has not reached",
                           fmt::localtime(static_cast<std::time_t>(updated)));
}

void print(const std::filesystem::path& run, const json& status,
           const std::optional<base::LiveRun>& live, bool colors) {
  const auto state = status.at("state").get<std::string>();
  const std::string updated = update_text(status.at("updated").get<double>());
  if (live && state == "preparing") {
    fmt::print("{}: {} ({})\n", run.string(), state, live->sentence());
  } else if (live) {
    fmt::print("{}", folded_text(fmt::format("{}: {} ({}; updated {})", run.string(), state,
                                             live->sentence(), updated),
                                 base::terminal_columns()));
  } else if (state == "ended") {
    fmt::print("{}: {}\n", run.string(), in_tones(end_line(run.string(), status), colors));
  } else {
    fmt::print("{}: its launcher is gone, last update {} while {}; {}\n", run.string(), updated,
               state, resume_hint(run));
  }
  if (live && live->suspended()) fmt::print("  {}\n", live->suspension());
  const std::size_t columns = base::terminal_columns();
  const std::size_t inside = columns > 2 ? columns - 2 : 0;
  std::vector<std::vector<std::string>> parts = state_parts(status, live.has_value(), inside);
  for (const std::string& line : {checkpoint_line(run), numbers_line(status)}) {
    if (!line.empty()) parts.insert(parts.begin(), wrapped(line, inside));
  }
  for (const auto& part : parts) {
    for (const std::string& line : part) fmt::print("  {}\n", in_tones(line, colors));
  }
}

}  // namespace

base::ExitCode show_status(const std::filesystem::path& run, bool as_json, bool colors) {
  const std::optional<base::LiveRun> live = run::RunDirectory::live(run);
  std::optional<json> status = run::read_run_status(run);
  if (!status && !live) {
    if (show_copy(run, as_json)) return base::ExitCode::done;
    run::refuse_run_not_started(run);
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
  // The launcher prepares the next start, and has not written its status yet.
  if (live && is_of_former_start(*status, *live)) {
    (*status)["state"] = "preparing";
    (*status)["outcome"] = nullptr;
  }
  if (as_json) {
    (*status)["live"] = live.has_value();
    if (live) (*status)["pid"] = live->pid;
    (*status)["checkpoints"] = checkpoints_here(run);
    fmt::print("{}\n", status->dump(2, ' ', false, json::error_handler_t::replace));
    return base::ExitCode::done;
  }
  try {
    print(run, *status, live, colors);
  } catch (const json::exception& error) {
    run::refuse_foreign_status(run, error);
  }
  return base::ExitCode::done;
}

void add_status(CLI::App& cli, Command& command) {
  struct Options {
    std::filesystem::path run;
    bool json = false;
    std::string color = "auto";
  };
  const auto options = std::make_shared<Options>();
  CLI::App* verb =
      cli.add_subcommand("status", "show the state of a run, or how it ended; list the runs");
  add_run_argument(verb, options->run)->description("its directory, or NAME; absent: all here");
  verb->add_flag("--json", options->json, "machine-readable output");
  add_color(verb, options->color);
  verb->callback([options, &command] {
    command.run = [options] {
      if (options->run.empty()) return list_runs("status", options->json);
      return show_status(options->run, options->json, base::wants_colors(options->color));
    };
  });
}

}  // namespace strait::cli
