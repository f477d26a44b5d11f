#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "framework/store/checkpoint.h"
#include "launcher/base/command_name.h"
#include "launcher/base/errors.h"
#include "launcher/base/stop_signals.h"
#include "launcher/base/text.h"
#include "launcher/base/text_pump.h"
#include "launcher/base/text_table.h"
#include "launcher/cli/changed_run.h"
#include "launcher/cli/closing_lines.h"
#include "launcher/cli/console.h"
#include "launcher/cli/number_range.h"
#include "launcher/cli/prepared_run.h"
#include "launcher/cli/run_options.h"
#include "launcher/cli/sample_completions.h"
#include "launcher/cli/verbs.h"
#include "launcher/hosts/agent_starter.h"
#include "launcher/hosts/slurm_job.h"
#include "launcher/planner/plan_maker.h"
#include "launcher/planner/plan_text.h"
#include "launcher/plugin/plugin_file.h"
#include "launcher/recipe/recipe_io.h"
#include "launcher/run/lost_hosts.h"
#include "launcher/run/resume_changes.h"
#include "launcher/run/resume_point.h"
#include "launcher/run/run_launch.h"
#include "launcher/run/supervised_run.h"

namespace strait::cli {
namespace {

namespace fs = std::filesystem;

// Of a stop while a run is planned or its checkpoint is chosen.
constexpr const char* kStoppedEarly =
    "strait: interrupted before any process was started; the same command starts again\n";

ConsoleOptions console_options(bool as_json) {
  ConsoleOptions options;
  if (as_json) {
    options.style = ConsoleOptions::Style::json;
  } else if (isatty(STDOUT_FILENO) != 0) {
    options.style = ConsoleOptions::Style::live;
    options.columns = [usual = options.columns]() -> std::size_t {
      const std::size_t columns = base::terminal_columns();
      return columns > 0 ? columns : usual();
    };
  }
  return options;
}

// A run goes on without its lines: all that they say is in its files.
base::TextPump make_pump(const RunOptions& options, const fs::path& run) {
  const auto failed = [run](int error) {
    warn(fmt::format("cannot write to stdout: {}; the run continues, see: {}",
                     std::generic_category().message(error), base::strait_command("watch", run)));
  };
  using Form = base::TextPump::Form;
  return base::TextPump(STDOUT_FILENO, options.json ? Form::as_json : Form::plain,
                        base::TextPump::kQueuedBytes, failed);
}

void print_plan(const plan::Plan& plan, Console& console) {
  console.plan(planner::plan_text(plan, base::terminal_columns()),
               to_json(plan::without_secrets(plan)).dump());
}

// The run has ended well, so no failure here must turn it into one, such as data that is gone.
void show_final_samples(const run::RunDirectory& directory, const std::atomic<int>& stops,
                        Console& console) {
  try {
    for (const std::string& line : sample_completions(directory.path(), stops)) console.note(line);
  } catch (const std::exception& error) {
    console.note(fmt::format("no samples: {}", base::describe_failure(error).text));
  }
}

base::ExitCode launch_and_show(run::RunDirectory& directory, const plan::RunFile& run,
                               run::LaunchOptions options, std::optional<store::Step> chosen,
                               const std::string& asked, Console& console) {
  // Never destroyed: no signal after the last step may change the exit code.
  static const auto* const kSignals = new base::StopSignals;
  options.model = model_questions();
  options.observers = {&console};
  if (!options.without.empty()) {
    console.note(fmt::format("starting without replica {}; to add one: {} --replica {}",
                             fmt::join(options.without, ", "),
                             base::strait_command("resume", directory.path()),
                             *options.without.begin()));
  }
  if (run.plan.recipe.hosts.backend == recipe::BackendKind::join) {
    for (const std::string& line : hosts::join_instructions(run.plan, directory.path()))
      console.note(line);
  }
  const run::Outcome outcome = run::run_supervised(directory, run, options, chosen, console);
  if (outcome.code == base::ExitCode::done && !outcome.stopped) {
    show_final_samples(directory, kSignals->count(), console);
  }
  console.finish(closing_lines(directory.path(), run.plan, outcome, asked,
                               losses_of(directory.path(), run.plan)));
  return outcome.code;
}

// What a resume was asked for: the run as it is to be, the checkpoint, the new recipe if it
// changes, and the words for it. Only in memory: a start that fails changes nothing.
struct ResumeRequest {
  plan::RunFile run;
  std::optional<store::Step> from;
  std::optional<std::string> recipe;
  std::string words;
};

ResumeRequest read_request(const run::RunDirectory& directory, const RunOptions& options) {
  if (!options.in_job) {
    ResumeRequest request{read_run(directory.path()), {}, {}, as_words(options)};
    if (options.from) request.from = store::Step{*options.from};
    return request;
  }
  const run::ResumeChanges pending = run::pending_changes(directory).value_or(run::ResumeChanges{});
  ResumeRequest request{
      pending.plan ? plan::parse_run_file(*pending.plan, directory.plan(), plugin::load_plugins)
                   : read_run(directory.path()),
      pending.from, pending.recipe, pending.words.value_or("")};
  name_nodes(request.run);
  return request;
}

// The job applies the changes, when its processes are up.
base::ExitCode submit_resume(run::RunDirectory directory, const ResumeRequest& request,
                             bool as_json) {
  std::optional<run::ResumeChanges> changes;
  if (request.from || request.recipe) {
    plan::protect_secrets(directory.path(), request.run.plan.recipe);
    changes = {request.from, plan::run_file_text(request.run), request.recipe, request.words};
  }
  run::keep_pending(directory, changes);
  return submit_to_slurm(std::move(directory), request.run.plan, as_json);
}

void check_belongs(const run::RunDirectory& directory, const plan::RunFile& run,
                   const store::Checkpoint& checkpoint) {
  const store::Manifest& manifest = checkpoint.manifest;
  const auto differences = store::differences(manifest, plan::manifest_for(run, 0, manifest.step));
  if (differences.empty()) return;
  throw base::UserError(
      base::ExitCode::mismatch,
      fmt::format("{} does not belong to the run of {}:\n  {}", checkpoint.path.string(),
                  directory.plan().string(), fmt::join(differences, "\n  ")));
}

}  // namespace

base::ExitCode run_recipe(const RunOptions& options) {
  base::StopSignals::announce(kStoppedEarly);
  planner::PlannedRun planned = planner::make_plan(read_recipe(options));
  run::check_can_start_without(planned.plan, options.without);
  hosts::check_launcher_address(planned.plan.recipe.hosts);
  warn_about_data(planned);
  const fs::path path = fs::path("runs") / planned.plan.recipe.name;
  if (is_requeued(planned.plan, path)) return run_allocated(path, options.json);
  hosts::SlurmJob::refuse_live(path);
  auto [directory, run] = prepare_run(path, std::move(planned),
                                      options.replace ? run::RunDirectory::Existing::move_aside
                                                      : run::RunDirectory::Existing::refuse);
  if (run.plan.recipe.hosts.backend == recipe::BackendKind::slurm) {
    return submit_to_slurm(std::move(directory), run.plan, options.json);
  }
  base::TextPump pump = make_pump(options, directory.path());
  Console console(pump, console_options(options.json));
  if (directory.moved_aside()) {
    console.note(fmt::format("the earlier run is now {}", directory.moved_aside()->string()));
  }
  print_plan(run.plan, console);
  run::LaunchOptions launch;
  launch.without = {options.without.begin(), options.without.end()};
  return launch_and_show(directory, run, launch, std::nullopt, "", console);
}

base::ExitCode run_prepared(const RunOptions& options) {
  run::RunDirectory directory = run::RunDirectory::open(options.recipe);
  plan::RunFile run = read_run(directory.path());
  name_nodes(run);
  base::TextPump pump = make_pump(options, directory.path());
  Console console(pump, console_options(options.json));
  print_plan(run.plan, console);
  return launch_and_show(directory, run, {}, std::nullopt, "", console);
}

base::ExitCode resume_run(const RunOptions& options) {
  base::StopSignals::announce(kStoppedEarly);
  if (!options.in_job) hosts::SlurmJob::refuse_live(options.recipe);
  run::RunDirectory directory = run::RunDirectory::open(options.recipe);
  ResumeRequest request = read_request(directory, options);
  plan::RunFile& run = request.run;
  base::TextPump pump = make_pump(options, directory.path());
  Console console(pump, console_options(options.json));
  // A job applies what was asked for when it was submitted; until then the file is the former one.
  if (!options.in_job) {
    const std::string edited = edited_recipe_note(directory.path(), run.plan.recipe);
    if (!edited.empty()) console.note(edited);
  }
  if (!request.from)
    request.from = run::good_step_instead(directory, run.plan, model_questions(), console);
  const store::Resumable point =
      run::choose_resume_point(directory, run, request.from, model_questions(), console);
  const store::Manifest& manifest = point.checkpoint.manifest;
  check_belongs(directory, run, point.checkpoint);
  std::vector<std::string> changes;
  if (!options.overrides.empty()) {
    ChangedRun changed = changed_run(directory, run, manifest.step, options.overrides);
    run = std::move(changed.run);
    request.recipe = recipe::recipe_to_toml(run.plan.recipe);
    changes = std::move(changed.notes);
  }
  if (number(manifest.step) >= run.plan.steps) {
    console.note(
        fmt::format("{} is complete: all {} steps are done{}; to train on: {} --set "
                    "train.steps={}",
                    directory.path().string(), run.plan.steps,
                    options.overrides.empty() ? "" : ", so nothing was changed",
                    base::strait_command("resume", directory.path()), 2 * run.plan.steps));
    return base::ExitCode::done;
  }
  for (const std::string& line : changes) console.note(line);
  run::check_can_start_without(run.plan, options.without);
  hosts::check_launcher_address(run.plan.recipe.hosts);
  if (run.plan.recipe.hosts.backend == recipe::BackendKind::slurm && !options.in_job) {
    return submit_resume(std::move(directory), request, options.json);
  }
  if (!point.warning.empty()) console.note(point.warning);
  print_plan(run.plan, console);
  console.note(fmt::format("resuming from step {} ({})", number(manifest.step),
                           point.checkpoint.path.string()));
  run::LaunchOptions launch;
  launch.recipe = request.recipe;
  launch.without = {options.without.begin(), options.without.end()};
  go_on_from(point.checkpoint, run.plan, launch);
  return launch_and_show(directory, run, launch, request.from, request.words, console);
}

void add_run(CLI::App& cli, Command& command) {
  const auto options = std::make_shared<RunOptions>();
  CLI::App* verb = cli.add_subcommand("run", "fine-tune a model as a recipe describes");
  verb->add_option("recipe", options->recipe, "a recipe file")->required();
  add_run_options(verb, options);
  verb->add_flag("--replace", options->replace, "move an earlier run of that name aside");
  add_without(verb, options);
  verb->callback([options, &command] { command = [options] { return run_recipe(*options); }; });
}

void add_resume(CLI::App& cli, Command& command) {
  struct Replica {
    std::optional<std::uint32_t> number;
    int timeout = 600;
  };
  const auto options = std::make_shared<RunOptions>();
  const auto replica = std::make_shared<Replica>();
  CLI::App* verb = cli.add_subcommand("resume", "resume a run from its newest checkpoint");
  add_run_argument(verb, options->recipe)->required();
  verb->footer(changeable_keys);
  add_run_options(verb, options);
  CLI::Option* one =
      verb->add_option("--replica", replica->number,
                       "of a live run: this replica rejoins (sync.on_loss = \"continue\")");
  one->excludes(add_without(verb, options));
  one->excludes(
      verb->add_option("--from", options->from,
                       "from the checkpoint of this step; newer ones are given up once it trains")
          ->check(up_to(kMostSteps)));
  verb->add_option("--timeout", replica->timeout, "with --replica: seconds to wait for it to join")
      ->needs(one)
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
  verb->callback([options, replica, &command] {
    command = [options, replica] {
      if (!replica->number) return resume_run(*options);
      return resume_replica(options->recipe, *replica->number,
                            std::chrono::seconds(replica->timeout));
    };
  });
}

}  // namespace strait::cli
