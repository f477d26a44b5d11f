

#include "framework/store/step_folders.h"
#include "launcher/base/run_file_names.h"
#include "launcher/base/stop_signals.h"
#include "launcher/base/text_pump.h"
#include "launcher/cli/console.h"
#include "launcher/compute/changed_run.h"
#include "launcher/compute/closing_lines.h"
#include "launcher/compute/cpu_speed.h"
#include "launcher/compute/prepared_run.h"
#include "launcher/compute/sample_prompts.h"
#include "launcher/compute/verbs.h"
#include "launcher/hosts/agent_starter.h"
#include "launcher/hosts/host_facts.h"
#include "launcher/hosts/rendezvous.h"
#include "launcher/planner/plan_maker.h"
#include "launcher/planner/plan_text.h"
#include "launcher/plugin/plugin_file.h"
#include "launcher/run/restart_policy.h"
#include "launcher/run/resume_point.h"
#include "launcher/run/run_directory.h"
#include "launcher/run/run_launch.h"

namespace strait::compute {
namespace {

namespace fs = std::filesystem;

// Of a stop while a run is planned or its checkpoint is chosen.
constexpr const char* kStoppedEarly =
    "strait: interrupted before any process was started; the same command starts again\n";
// A node that comes after a failed start would wait for a launcher as long as hosts.join_wait says.
constexpr std::chrono::seconds kTellNodesFor{20};

// A run goes on without its lines: all that they say is in its files.
base::TextPump make_pump(const cli::RunOptions& options, const fs::path& run) {
  const auto failed = [run](int error) {
    cli::warn(fmt::format("cannot write to stdout: {}; the run continues, see: {}",
                          std::generic_category().message(error),
                          base::strait_command("watch", run)));
  };
  using Form = base::TextPump::Form;
  return base::TextPump(STDOUT_FILENO, options.json ? Form::as_json : Form::plain,
                        base::TextPump::kQueuedBytes, failed);
}

void print_plan(const plan::Plan& plan, cli::Console& console) {
  console.plan(planner::plan_text(plan, base::terminal_columns()),
               to_json(plan::without_secrets(plan)).dump());
}

// The run has ended well, so no failure here must turn it into one, such as data that is gone.
void show_final_samples(const run::RunDirectory& directory, const std::atomic<int>& stops,
                        cli::Console& console) {
  try {
    for (const std::string& line : sample_completions(directory.path(), stops)) console.note(line);
  } catch (const std::exception& error) {
    console.note(fmt::format("no samples: {}", base::describe_failure(error).text));
  }
}

base::ExitCode launch_and_show(run::RunDirectory& directory, const plan::RunFile& run,
                               run::LaunchOptions options, std::optional<store::Step> chosen,
                               const std::string& asked, cli::Console& console) {
  // No signal after the last step may change the exit code.
  const base::StopSignals& signals = base::StopSignals::for_good();
  options.model = model_questions();
  options.observers = {&console};
  if (!options.without.empty()) {
    console.note(fmt::format("starting without replica {}; to add one: {} --replica {}",
                             fmt::join(options.without, ", "),
                             base::strait_command("resume", directory.path()),
                             *options.without.begin()));
  }
  const run::Outcome outcome = run::run_supervised(directory, run, options, chosen, console);
  if (outcome.code == base::ExitCode::done && !outcome.stopped) {
    show_final_samples(directory, signals.count(), console);
  }
  console.finish(closing_lines(directory.path(), run.plan, outcome, asked,
                               losses_of(directory.path(), run.plan)));
  // An engine starts again what a signal of its own has stopped, unless the exit code is 0.
  const bool goes_on = options.by_engine && outcome.stopped && !base::StopSignals::asked();
  const base::ExitCode code = goes_on ? base::ExitCode::interrupted : outcome.code;
  if (options.rendezvous != nullptr) {
    options.rendezvous->end(code, goes_on ? "stopped, and saved" : outcome.cause);
  }
  return code;
}

// Where hosts join this run by themselves; null: it calls its hosts, or has none.
using Joining = std::unique_ptr<hosts::Rendezvous>;

Joining open_for_tokens(const run::RunDirectory& directory, const recipe::Recipe& recipe,
                        cli::Console& console) {
  if (recipe.hosts.backend == recipe::BackendKind::join)
    base::StopSignals::for_good();  // no token may be left
  Joining joining = hosts::open_rendezvous(recipe, directory.path());
  for (const std::string& line : hosts::join_instructions(recipe, directory.path()))
    console.note(line);
  return joining;
}

// With --rendezvous: the keys that follow from the nodes, in place of those in the recipe.
std::vector<std::string> hosts_by_rank(const hosts::NodeRank& node) {
  std::vector<std::string> names;
  for (std::uint32_t rank = 0; rank < node.nodes; ++rank)
    names.push_back(fmt::format("\"node{}\"", rank));
  std::vector<std::string> keys = {"hosts.backend=\"join\"", "hosts.spare=[]",
                                   fmt::format("hosts.list=[{}]", fmt::join(names, ", "))};
  if (node.rank > 0) return keys;
  keys.push_back(
      fmt::format("hosts.address=\"{}\"",
                  address_of_first(node, hosts::addresses_of(node.first), hosts::own_addresses())));
  return keys;
}

// The rendezvous of this node, which has rank 0. Any other node becomes a host of the run instead.
Joining meet_nodes(cli::RunOptions& options) {
  const hosts::NodeRank node = hosts::node_rank(options.rank, hosts::own_variable);
  const std::string secret = hosts::take_rendezvous_secret();
  std::ranges::move(hosts_by_rank(node), std::back_inserter(options.overrides));
  const recipe::Recipe recipe = read_recipe(options);
  if (node.rank > 0) cli::join_run(hosts::ticket_of_node(recipe, node, secret));
  return hosts::open_rendezvous(recipe.hosts, secret);
}

// Waits until all nodes have joined, and sends each of them how the run has ended.
void wait_for_nodes(const recipe::Recipe::Hosts& hosts, std::chrono::seconds limit,
                    hosts::Rendezvous& rendezvous) {
  const base::StopSignals signals;
  std::vector<std::string> names;
  for (const recipe::RecipeHost& host : hosts.list) names.push_back(host.name);
  rendezvous.wait_for(names, limit, [&signals] { return signals.count().load() > 0; });
}

bool has_checkpoint(const fs::path& run) {
  return store::is_present(run / base::kPlanFile) && !store::committed_steps(run).empty();
}

void check_belongs(const run::RunDirectory& directory, const plan::RunFile& run,
                   const store::Checkpoint& checkpoint) {
  const store::Manifest& manifest = checkpoint.manifest;
  const auto differences = store::differences(manifest, plan::manifest_for(run, 0, manifest.step));
  if (differences.empty()) return;
  throw base::UserError(base::ExitCode::mismatch, "{} does not belong to the run of {}:\n  {}",
                        checkpoint.path.string(), directory.plan().string(),
                        fmt::join(differences, "\n  "));
}

// Nothing is left to train. The nodes must hear of it.
base::ExitCode report_complete(const std::string& line, const plan::Plan& plan,
                               hosts::Rendezvous* rendezvous, cli::Console& console) {
  console.note(line);
  if (rendezvous == nullptr) return base::ExitCode::done;
  rendezvous->end(base::ExitCode::done, "");
  wait_for_nodes(plan.recipe.hosts, std::chrono::seconds(plan.recipe.hosts.join_wait), *rendezvous);
  return base::ExitCode::done;
}

// `rendezvous`: of the nodes that an engine has started; null: there is none. `given`: the recipe
// of a run that exists already; null: of a resume, which has none.
base::ExitCode go_on(const cli::RunOptions& options, hosts::Rendezvous* rendezvous,
                     const recipe::Recipe* given) {
  run::RunDirectory directory = run::RunDirectory::open(options.recipe);
  plan::RunFile run = load_run(directory.path());
  std::optional<store::Step> from;
  if (options.from) from = store::Step{*options.from};
  base::TextPump pump = make_pump(options, directory.path());
  cli::Console console(pump, cli::ConsoleOptions::of_stdout(options.json, options.color));
  const std::string edited = edited_recipe_note(directory.path(), run.plan.recipe);
  if (!edited.empty()) console.note(edited);
  const bool by_engine = rendezvous != nullptr;
  if (given != nullptr) {
    const std::string ignored =
        ignored_recipe_note(directory.path(), run.plan.recipe, *given, by_engine);
    if (!ignored.empty()) console.note(ignored);
  }
  const Joining by_tokens =
      by_engine ? nullptr : open_for_tokens(directory, run.plan.recipe, console);
  if (!by_engine) rendezvous = by_tokens.get();
  if (!from) from = run::good_step_instead(directory, run.plan, model_questions(), console);
  const store::Resumable point =
      run::choose_resume_point(directory, run, from, model_questions(), rendezvous, console);
  const store::Manifest& manifest = point.checkpoint.manifest;
  check_belongs(directory, run, point.checkpoint);
  run::LaunchOptions launch;
  if (!options.overrides.empty()) {
    ChangedRun changed = changed_run(directory, run, manifest.step, options.overrides);
    run = std::move(changed.run);
    launch.recipe = recipe::recipe_to_toml(run.plan.recipe);
    if (number(manifest.step) < run.plan.steps) {
      for (const std::string& line : changed.notes) console.note(line);
    }
  }
  run::LossHistory losses = losses_of(directory.path(), run.plan);
  losses.go_back(manifest.step);
  const std::string early = losses.end_reason(run.plan.recipe.train.stop_when);
  if (number(manifest.step) >= run.plan.steps || !early.empty()) {
    return report_complete(
        complete_line(directory.path(), run.plan, early, !options.overrides.empty() && !by_engine),
        run.plan, rendezvous, console);
  }
  run::check_can_start_without(run.plan, options.without);
  hosts::check_launcher_address(run.plan.recipe.hosts);
  if (!point.warning.empty()) console.note(point.warning);
  print_plan(run.plan, console);
  console.note(fmt::format("resuming from step {} ({})", number(manifest.step),
                           point.checkpoint.path.string()));
  launch.without = {options.without.begin(), options.without.end()};
  launch.rendezvous = rendezvous;
  launch.by_engine = by_engine;
  go_on_from(point.checkpoint, run.plan, launch);
  return launch_and_show(directory, run, launch, from, as_words(options), console);
}

// The same command again goes on with what the first one has begun. Its --set are in the run.
base::ExitCode go_on_with(const fs::path& path, const recipe::Recipe& recipe,
                          const cli::RunOptions& options, hosts::Rendezvous* rendezvous) {
  cli::RunOptions again;
  again.recipe = path;
  again.json = options.json;
  again.color = options.color;
  again.without = options.without;
  if (rendezvous != nullptr) {
    const auto first = std::ranges::find_if(options.overrides, [](const std::string& one) {
      // The keys that follow from the nodes come last; those before it are the user's, which the
      // run has.
      return one.starts_with("hosts.backend=\"join\"");
    });
    again.overrides.assign(first, options.overrides.end());
  }
  return go_on(again, rendezvous, &recipe);
}

base::ExitCode begin_or_go_on(const recipe::Recipe& recipe, const cli::RunOptions& options,
                              hosts::Rendezvous* rendezvous) {
  const fs::path path = fs::path("runs") / recipe.name;
  const bool exists = options.resume_if_exists && has_checkpoint(path);
  if (exists) return go_on_with(path, recipe, options, rendezvous);
  planner::PlannedRun planned = plan_first(recipe);
  run::check_can_start_without(planned.plan, options.without);
  hosts::check_launcher_address(planned.plan.recipe.hosts);
  warn_about_data(planned);
  const bool aside = options.replace || options.resume_if_exists;  // that one has no checkpoint
  auto [directory, run] = prepare_run(
      path, std::move(planned),
      aside ? run::RunDirectory::Existing::move_aside : run::RunDirectory::Existing::refuse);
  base::TextPump pump = make_pump(options, directory.path());
  cli::Console console(pump, cli::ConsoleOptions::of_stdout(options.json, options.color));
  if (directory.moved_aside()) {
    console.note(fmt::format("the earlier run is now {}", directory.moved_aside()->string()));
  }
  print_plan(run.plan, console);
  run::LaunchOptions launch;
  launch.by_engine = rendezvous != nullptr;
  const Joining by_tokens =
      launch.by_engine ? nullptr : open_for_tokens(directory, run.plan.recipe, console);
  launch.rendezvous = launch.by_engine ? rendezvous : by_tokens.get();
  launch.without = {options.without.begin(), options.without.end()};
  return launch_and_show(directory, run, launch, std::nullopt, "", console);
}

}  // namespace

base::ExitCode perform(const cli::RunFlags& flags) {
  cli::RunOptions options = flags.run;
  base::StopSignals::announce(kStoppedEarly);
  const Joining nodes = options.rendezvous ? meet_nodes(options) : nullptr;
  const recipe::Recipe recipe = read_recipe(options);
  try {
    return begin_or_go_on(recipe, options, nodes.get());
  } catch (const std::exception& error) {
    if (nodes) {
      const base::Failure failure = base::describe_failure(error);
      nodes->end(failure.code, failure.text);
      // Those that a start has lacked were waited for already.
      const bool lacked = failure.code == base::ExitCode::peer_lost;
      if (!lacked) wait_for_nodes(recipe.hosts, kTellNodesFor, *nodes);
    }
    throw;
  }
}

base::ExitCode perform(const cli::ResumeFlags& flags) {
  base::StopSignals::announce(kStoppedEarly);
  return go_on(flags.run, nullptr, nullptr);
}

}  // namespace strait::compute
