#include "launcher/app/resume_point.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "framework/store/store_error.h"
#include "launcher/app/run_options.h"
#include "launcher/base/errors.h"
#include "launcher/launch/run_launch.h"

namespace strait::app {
namespace {

std::vector<std::int64_t> saved_steps(const control::RunDirectory& directory) {
  std::vector<std::int64_t> steps;
  for (const store::Step step : store::committed_steps(directory.path())) {
    steps.push_back(number(step));
  }
  return steps;
}

// Only the user may pass over a checkpoint that may still be recoverable.
[[noreturn]] void refuse_to_go_back(const control::RunDirectory& directory,
                                    const base::Failure& failure) {
  const std::vector<std::int64_t> steps = saved_steps(directory);
  std::string advice = "nothing was changed: resume again once that is mended";
  if (steps.size() > 1) {
    advice += fmt::format(", or give newer checkpoints up: strait resume {} --from STEP (of {})",
                          directory.path().string(), fmt::join(steps, ", "));
  }
  throw base::UserError(failure.code, fmt::format("{}; {}", failure.text, advice));
}

store::Resumable chosen_by_user(const control::RunDirectory& directory, store::Step step) {
  const auto path = store::checkpoint_directory(directory.path(), step);
  return {{path, store::open_checkpoint(path, store::Verify::hashes)}, {}, {}};
}

store::Resumable newest(const control::RunDirectory& directory, bool on_hosts) {
  auto found = store::choose_checkpoint(directory.path());
  if (!found) {
    throw base::UserError(
        base::ExitCode::bad_input,
        fmt::format("{} has no complete checkpoint to resume from; run its recipe again "
                    "with --replace",
                    directory.path().string()));
  }
  if (on_hosts && !found->damage.empty()) {
    refuse_to_go_back(
        directory,
        {base::ExitCode::corrupt,
         found->damage + " (what is removed here is fetched again, if its host still has it)"});
  }
  return *found;
}

}  // namespace

store::Resumable choose_resume_point(control::RunDirectory& directory, const plan::RunFile& run,
                                     std::optional<store::Step> from, console::Console& console) {
  if (from && std::ranges::count(store::committed_steps(directory.path()), *from) == 0) {
    throw base::UserError(
        base::ExitCode::bad_input,
        fmt::format("{} has no checkpoint of step {}; it has: {}", directory.path().string(),
                    number(*from), fmt::join(saved_steps(directory), ", ")));
  }
  const recipe::BackendKind backend = run.plan.recipe.hosts.backend;
  const bool on_hosts = backend == recipe::BackendKind::ssh || backend == recipe::BackendKind::join;
  const auto report = [&console](const control::Event& event) {
    console.event("the launcher", event);
  };
  try {
    const std::string recovered =
        launch::recover_checkpoint(directory, run, from, model_questions(), report);
    if (!recovered.empty()) console.note(recovered);
  } catch (const base::UserError& error) {
    if (error.code() == base::ExitCode::interrupted || from) throw;
    refuse_to_go_back(directory, base::describe_failure(error));
  } catch (const store::StoreError& error) {
    if (from) throw;
    refuse_to_go_back(directory, base::describe_failure(error));
  }
  if (from) return chosen_by_user(directory, *from);
  try {
    return newest(directory, on_hosts);
  } catch (const store::StoreError& error) {
    if (error.kind() == store::StoreError::Kind::corrupt) throw;  // none is right
    refuse_to_go_back(directory, base::describe_failure(error));
  }
}

std::optional<store::Resumable> newest_resume_point(control::RunDirectory& directory,
                                                    const plan::RunFile& run,
                                                    const std::set<std::size_t>& lost,
                                                    console::Console& console) {
  const auto pass_over = [&console](const std::exception& error) {
    console.note(
        fmt::format("an older checkpoint is used: {}", base::describe_failure(error).text));
  };
  try {
    const std::string recovered = launch::recover_checkpoint(
        directory, run, std::nullopt, model_questions(),
        [&console](const control::Event& event) { console.event("the launcher", event); }, lost);
    if (!recovered.empty()) console.note(recovered);
  } catch (const base::UserError& error) {
    if (error.code() == base::ExitCode::interrupted) throw;
    pass_over(error);
  } catch (const store::StoreError& error) {
    pass_over(error);
  }
  std::optional<store::Resumable> found = store::choose_checkpoint(directory.path());
  if (found && !found->warning.empty()) console.note(found->warning);
  return found;
}

void go_on_from(const store::Checkpoint& checkpoint, const plan::Plan& plan,
                launch::LaunchOptions& options) {
  options.resume = std::filesystem::absolute(checkpoint.path).string();
  options.from = checkpoint.manifest.step;
  options.caches = plan::decide_caches(checkpoint.manifest, plan);
  options.sync = plan::decide_sync(checkpoint.manifest, plan, options.without);
}

}  // namespace strait::app
