#include <fmt/chrono.h>

#include <ctime>

#include "framework/store/store_error.h"
#include "framework/store/verify_checkpoint.h"
#include "launcher/cli/saved_checkpoints.h"
#include "launcher/compute/verbs.h"
#include "launcher/run/run_directory.h"
#include "launcher/run/run_storage.h"

namespace strait::compute {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using State = cli::SavedCheckpoint::State;

plan::Plan plan_of(const fs::path& run) { return load_run(run).plan; }

std::vector<cli::SavedCheckpoint> list_of(const fs::path& run) {
  return cli::saved_checkpoints(run, plan_of(run));
}

// The machines that may be lost without losing a complete checkpoint.
std::string place_text(const cli::SavedCheckpoint& one) {
  if (one.state != State::complete) return one.problem;
  if (one.here == store::Part::all) return "whole on this machine";
  return fmt::format(
      "{}on {}", one.here == store::Part::weights ? "weights on this machine, the rest " : "",
      one.hosts.empty() ? "its hosts" : fmt::format("{}", fmt::join(one.hosts, ", ")));
}

std::string time_text(double unix_time) {
  if (unix_time == 0) return "-";
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(static_cast<std::time_t>(unix_time)));
}

// Of a complete one: what the losses of its weights say. nullopt: nothing yet.
std::optional<bool> is_good(const cli::SavedCheckpoint& one, const run::LossHistory& losses) {
  if (one.state != State::complete) return std::nullopt;
  if (losses.is_good(one.step)) return true;
  const bool seen = losses.is_seen(one.step) || losses.is_bad(one.step);
  return seen ? std::optional(false) : std::nullopt;
}

std::string judgement_text(std::optional<bool> good, std::optional<double> evaluation, bool best) {
  std::string text = !good ? "" : *good ? ", known to be good" : ", its losses have diverged";
  if (evaluation) text += fmt::format(", evaluation loss {:.4g}", *evaluation);
  return text + (best ? ", the best" : "");
}

std::optional<double> evaluation_of(const cli::SavedCheckpoint& one,
                                    const run::LossHistory& losses) {
  return one.state == State::complete ? losses.evaluation(one.step) : std::nullopt;
}

bool is_best(const cli::SavedCheckpoint& one, std::optional<store::Step> best) {
  return one.state == State::complete && one.step == best;
}

// That of --checkpoint best.
std::optional<store::Step> best_step(const std::vector<cli::SavedCheckpoint>& list,
                                     const run::LossHistory& losses) {
  std::vector<store::Step> complete;
  for (const cli::SavedCheckpoint& one : list) {
    if (one.state == State::complete) complete.push_back(one.step);
  }
  const auto best = store::best_of(complete, losses.best(1));
  return best.empty() ? std::nullopt : std::optional(best.front());
}

base::ExitCode list_checkpoints_of(const fs::path& run, bool as_json) {
  const plan::Plan plan = plan_of(run);
  const std::vector<cli::SavedCheckpoint> list = cli::saved_checkpoints(run, plan);
  const run::LossHistory losses = losses_of(run, plan);
  const std::optional<store::Step> best = best_step(list, losses);
  if (as_json) {
    json lines = json::array();
    for (const cli::SavedCheckpoint& one : list) {
      const std::optional<bool> good = is_good(one, losses);
      const std::optional<double> evaluation = evaluation_of(one, losses);
      lines.push_back({{"step", number(one.step)},
                       {"path", one.path.string()},
                       {"state", name_of(one.state)},
                       {"good", good ? json(*good) : json(nullptr)},
                       {"evaluation", evaluation ? json(*evaluation) : json(nullptr)},
                       {"best", is_best(one, best)},
                       {"saved", one.saved == 0 ? json(nullptr) : json(one.saved)},
                       {"bytes", one.bytes},
                       {"files", one.files},
                       {"here", cli::name_of_part(one.here)},
                       {"hosts", one.hosts},
                       {"problem", one.problem}});
    }
    const json all = {{"format", store::Manifest::kFormatVersion}, {"checkpoints", lines}};
    // A problem may quote the bytes of a damaged file.
    fmt::print("{}\n", all.dump(2, ' ', false, json::error_handler_t::replace));
    return base::ExitCode::done;
  }
  if (list.empty()) fmt::print("{} has no checkpoint\n", run.string());
  for (const cli::SavedCheckpoint& one : list) {
    const std::string size =
        one.state == State::complete
            ? fmt::format("{} in {}", base::byte_text(one.bytes), base::counted(one.files, "file"))
            : "-";
    fmt::print(
        "step {:<8} {:<19}  {:<16}  {:<22}  {}{}\n", number(one.step), time_text(one.saved),
        name_of(one.state), size, place_text(one),
        judgement_text(is_good(one, losses), evaluation_of(one, losses), is_best(one, best)));
  }
  return base::ExitCode::done;
}

// The committed ones, or that of this step.
std::vector<cli::SavedCheckpoint> chosen(const fs::path& run, std::optional<std::int64_t> step) {
  std::vector<cli::SavedCheckpoint> list = list_of(run);
  std::erase_if(list, [](const cli::SavedCheckpoint& one) {
    return one.state == State::unfinished || one.state == State::aside;
  });
  std::vector<std::int64_t> steps;
  steps.reserve(list.size());
  for (const cli::SavedCheckpoint& one : list) steps.push_back(number(one.step));
  if (step) {
    std::erase_if(list, [&](const cli::SavedCheckpoint& one) { return number(one.step) != *step; });
  }
  if (!list.empty()) return list;
  throw base::UserError(base::ExitCode::bad_input,
                        steps.empty() ? fmt::format("{} has no complete checkpoint", run.string())
                                      : fmt::format("{} has no checkpoint of step {}; it has: {}",
                                                    run.string(), *step, fmt::join(steps, ", ")));
}

// True: every byte that was looked at is right.
bool print_found(const std::string& name, const store::Verification& found) {
  const std::string elsewhere = found.elsewhere.empty()
                                    ? ""
                                    : fmt::format("; not looked at, because they are on hosts: {}",
                                                  fmt::join(found.elsewhere, ", "));
  if (found.damage.empty()) {
    fmt::print("{}: {} compared, every byte is right{}\n", name, base::byte_text(found.bytes),
               elsewhere);
    return true;
  }
  fmt::print("{}: damaged{}\n", name, elsewhere);
  for (const store::Damage& damage : found.damage) fmt::print("  {}\n", damage.sentence);
  return false;
}

base::ExitCode verify_checkpoints(const fs::path& run, std::optional<std::int64_t> step) {
  const plan::Plan plan = plan_of(run);
  bool right = true;
  for (const cli::SavedCheckpoint& one : chosen(run, step)) {
    if (one.state == State::foreign) {
      fmt::print("step {}: not compared: {}\n", number(one.step), one.problem);
      right = false;
      continue;
    }
    const store::Part here = one.state == State::complete ? one.here : run::part_here(plan);
    const store::Verification found = store::verify_checkpoint(one.path, here);
    if (!found.damage.empty() && !store::is_committed(one.path)) {  // a live run prunes
      fmt::print("step {}: was removed meanwhile\n", number(one.step));
      continue;
    }
    right = print_found(fmt::format("step {}", number(one.step)), found) && right;
  }
  if (const std::optional<fs::path> base = plan::own_base(run, plan)) {
    right = print_found("weights under the adapters", store::verify_checkpoint(*base)) && right;
  }
  return right ? base::ExitCode::done : base::ExitCode::corrupt;
}

// Newer ones that are not copied, as `chosen` lists them.
void warn_of_passed_over(const std::vector<cli::SavedCheckpoint>& list,
                         const cli::SavedCheckpoint& copied) {
  std::vector<std::string> problems;
  for (const cli::SavedCheckpoint& one : list) {
    if (one.step > copied.step) problems.push_back(one.problem);
  }
  if (problems.empty()) return;
  cli::warn(fmt::format("copying {}, because a newer checkpoint cannot be used: {}",
                        copied.path.string(), fmt::join(problems, "; ")));
}

base::ExitCode copy_checkpoint_of(const fs::path& run, const fs::path& target,
                                  std::optional<std::int64_t> step) {
  const plan::Plan plan = plan_of(run);
  std::vector<cli::SavedCheckpoint> list = chosen(run, step);
  // Without a step: the newest that is complete.
  const auto found = std::ranges::find(list, State::complete, &cli::SavedCheckpoint::state);
  const cli::SavedCheckpoint& one = found == list.end() ? list.front() : *found;
  if (one.state != State::complete || one.here == store::Part::none) {
    throw base::UserError(base::ExitCode::corrupt, "checkpoint {} cannot be copied: {}{}",
                          number(one.step), place_text(one),
                          cli::intact_instead(list_of(run), plan, one.step));
  }
  warn_of_passed_over(list, one);
  const cli::CopiedRun copied = [&] {
    try {
      return cli::copy_run(
          run, target,
          {one.path, store::open_checkpoint(one.path, store::Verify::sizes, run::part_here(plan))});
    } catch (const store::StoreError& error) {
      if (error.kind() != store::StoreError::Kind::corrupt) throw;
      throw base::UserError(base::ExitCode::corrupt,
                            error.what() + cli::intact_instead(list_of(run), plan, one.step));
    }
  }();
  if (copied.part == store::Part::all) {
    fmt::print("step {} ({}) is in {}; go on with: {}\n", number(copied.step),
               base::byte_text(copied.bytes), target.string(),
               base::strait_command("resume", target));
  } else {
    fmt::print(
        "the weights of step {} ({}) are in {}, for export, eval and generate; it cannot be "
        "resumed, because the rest is {}\n",
        number(copied.step), base::byte_text(copied.bytes), target.string(),
        one.hosts.empty() ? "on its hosts" : fmt::format("on {}", fmt::join(one.hosts, ", ")));
  }
  return base::ExitCode::done;
}

base::ExitCode prune_run(const fs::path& run, const cli::PruneRule& rule) {
  const run::RunDirectory directory = run::RunDirectory::open(run);
  const plan::Plan plan = plan_of(run);
  std::vector<cli::SavedCheckpoint> list = cli::saved_checkpoints(run, plan);
  const run::LossHistory losses = losses_of(run, plan);
  const std::optional<store::Step> good = losses.good();
  const store::BestRule best = losses.best(plan.recipe.checkpoint.keep_best);
  // Every byte that would stay is read first: what is intact must not be removed for what is
  // damaged.
  const std::vector<std::string> damage = cli::mark_damaged(list, plan, rule.keep, good, best);
  for (const std::string& sentence : damage) fmt::print("damaged: {}\n", sentence);
  const std::vector<store::Step> kept = cli::kept_steps(list, rule.keep, rule.every, good, best);
  if (kept.empty() && !damage.empty()) {
    throw base::UserError(base::ExitCode::corrupt,
                          "{} has no checkpoint that is intact; nothing was removed", run.string());
  }
  if (kept.empty()) {
    fmt::print("{} has no complete checkpoint; nothing was removed\n", run.string());
    return base::ExitCode::done;
  }
  std::vector<std::int64_t> steps;
  steps.reserve(kept.size());
  for (const store::Step step : kept) steps.push_back(number(step));
  if (rule.dry_run) {
    for (const cli::SavedCheckpoint& one : list) {
      // The rule of prune_all_but(), so that a dry run says what the next command does.
      const bool stays = one.state != State::aside &&
                         (one.step >= kept.front() || std::ranges::count(kept, one.step) > 0);
      fmt::print("{} {}\n", stays ? "would stay:  " : "would remove:", one.path.string());
    }
    return base::ExitCode::done;
  }
  const store::Pruned pruned = store::prune_all_but(run, kept);
  for (const fs::path& path : pruned.removed) fmt::print("removed {}\n", path.string());
  for (const store::Pruned::Left& left : pruned.left) fmt::print("stays: {}\n", left.reason);
  fmt::print("kept: {}\n", fmt::join(steps, ", "));
  return pruned.left.empty() ? base::ExitCode::done : base::ExitCode::storage_io;
}

}  // namespace

base::ExitCode perform(const cli::CheckpointFlags& flags) {
  switch (flags.part) {
    case cli::CheckpointFlags::Part::list:
      return list_checkpoints_of(flags.run, flags.json);
    case cli::CheckpointFlags::Part::verify:
      return verify_checkpoints(flags.run, flags.step);
    case cli::CheckpointFlags::Part::copy:
      return copy_checkpoint_of(flags.run, flags.target, flags.step);
    case cli::CheckpointFlags::Part::prune:
      break;
  }
  return prune_run(flags.run, flags.rule);
}

}  // namespace strait::compute
