#include "launcher/run/resume_point.h"

#include "framework/store/store_error.h"
#include "framework/store/verify_checkpoint.h"
#include "launcher/base/own_program.h"
#include "launcher/base/text.h"

namespace strait::run {
namespace {

namespace fs = std::filesystem;

std::vector<std::int64_t> saved_steps(const RunDirectory& directory) {
  std::vector<std::int64_t> steps;
  for (const store::Step step : store::committed_steps(directory.path())) {
    steps.push_back(number(step));
  }
  return steps;
}

// Only the user may pass over a checkpoint that may still be recoverable.
[[noreturn]] void refuse_to_go_back(const RunDirectory& directory, const base::Failure& failure) {
  const std::vector<std::int64_t> steps = saved_steps(directory);
  std::string advice = "nothing was changed: resume again once that is mended";
  if (steps.size() > 1) {
    advice += fmt::format(", or give newer checkpoints up: {} --from {} (it has: {})",
                          base::strait_command("resume", directory.path()), steps[1],
                          fmt::join(steps, ", "));
  }
  throw base::UserError(failure.code, "{}; {}", failure.text, advice);
}

store::Resumable chosen_by_user(const RunDirectory& directory, store::Step step) {
  const auto path = store::checkpoint_directory(directory.path(), step);
  return {{path, store::open_checkpoint(path, store::Verify::hashes)}, {}, {}};
}

// Over hosts a newer one that is damaged is not passed over: StoreError corrupt.
store::Resumable newest(const RunDirectory& directory, bool on_hosts) {
  auto found = store::choose_checkpoint(directory.path());
  if (!found) {
    throw base::UserError(base::ExitCode::bad_input,
                          "{} has no complete checkpoint to resume from; begin again with: {}",
                          directory.path().string(), run_again_command(directory.path()));
  }
  if (on_hosts && !found->damage.empty()) {
    throw store::StoreError(store::StoreError::Kind::corrupt, found->damage);
  }
  return *found;
}

// The first of these steps whose checkpoint is not damaged, with a note of each that is; the first
// of all if none is whole.
store::Step newest_whole(const RunDirectory& directory, const std::vector<store::Step>& steps,
                         RunObserver& observer) {
  std::string damage;
  for (const store::Step step : steps) {
    try {
      chosen_by_user(directory, step);
      if (!damage.empty()) observer.note("an older checkpoint is used: " + damage);
      return step;
    } catch (const store::StoreError& error) {
      if (error.kind() != store::StoreError::Kind::corrupt) return step;
      damage += (damage.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  return steps.front();
}

bool is_on_hosts(const plan::RunFile& run) {
  return recipe::stores_on_hosts(run.plan.recipe.hosts.backend);
}

// Fetches what only hosts have of the newest checkpoint, or of that of step `from`, with a note on
// `observer`. False: there was nothing to fetch.
bool recover(RunDirectory& directory, const plan::RunFile& run, std::optional<store::Step> from,
             const std::set<std::size_t>& lost, const ModelQuestions& model,
             hosts::Rendezvous* rendezvous, RunObserver& observer) {
  const auto report = [&observer](const Event& event) { observer.event("the launcher", event); };
  const std::string recovered =
      recover_checkpoint(directory, run, from, model, rendezvous, report, lost);
  if (!recovered.empty()) observer.note(recovered);
  return !recovered.empty();
}

// Files under other names while they are fetched again. Those that did not come are put back: a
// file that is there has come whole. UserError: one cannot be renamed.
class SetAside {
 public:
  explicit SetAside(std::vector<fs::path> files) : files_(std::move(files)) {
    for (const fs::path& file : files_) {
      std::error_code error;
      fs::rename(file, damaged(file), error);
      if (error) {
        put_back();
        throw base::UserError(base::ExitCode::storage_io, "cannot rename {}: {}", file.string(),
                              error.message());
      }
    }
  }
  ~SetAside() { put_back(); }
  SetAside(const SetAside&) = delete;
  SetAside& operator=(const SetAside&) = delete;

 private:
  static fs::path damaged(const fs::path& file) { return file.string() + ".damaged"; }

  void put_back() {
    std::error_code ignored;
    for (const fs::path& file : files_) {
      if (fs::exists(file, ignored))
        fs::remove(damaged(file), ignored);
      else
        fs::rename(damaged(file), file, ignored);
    }
  }

  std::vector<fs::path> files_;
};

// Fetches files of the newest checkpoint, or of that of step `from`, that are damaged here again
// from the hosts that wrote them. Returns why that was not possible, `corrupt` where it never will
// be; without text: they are whole again.
base::Failure fetch_damaged(RunDirectory& directory, const plan::RunFile& run,
                            std::optional<store::Step> from, const std::set<std::size_t>& lost,
                            const ModelQuestions& model, hosts::Rendezvous* rendezvous,
                            RunObserver& observer) {
  const std::vector<store::Step> steps = store::committed_steps(directory.path());
  const fs::path checkpoint =
      store::checkpoint_directory(directory.path(), from.value_or(steps.front()));
  std::vector<fs::path> files;
  for (const store::Damage& damage : store::verify_checkpoint(checkpoint).damage) {
    const fs::path file = checkpoint / damage.file;
    if (damage.file == store::kManifestName)
      return {base::ExitCode::corrupt, "its manifest has no other copy"};
    observer.note(damage.sentence);
    if (std::ranges::find(files, file) == files.end()) files.push_back(file);
  }
  // A file that is missing cannot be renamed.
  std::erase_if(files, [](const fs::path& file) {
    std::error_code error;
    return fs::symlink_status(file, error).type() == fs::file_type::not_found;
  });
  try {
    const SetAside aside(std::move(files));
    if (!recover(directory, run, from, lost, model, rendezvous, observer)) {
      return {base::ExitCode::corrupt, "no host is known to have another copy"};
    }
    return {base::ExitCode::done, ""};
  } catch (const base::UserError& error) {
    if (error.code() == base::ExitCode::interrupted) throw;
    return {error.code(), error.what()};
  }
}

}  // namespace

store::Step step_to_go_on_from(const std::vector<store::Step>& saved, const LossHistory& losses) {
  const store::Step newest = saved.front();
  if (!losses.is_bad(newest)) return newest;
  return store::newest_good(saved, losses.good()).value_or(newest);
}

std::optional<store::Step> good_step_instead(const RunDirectory& directory, const plan::Plan& plan,
                                             const ModelQuestions& model, RunObserver& observer) {
  std::vector<store::Step> saved;
  try {
    saved = store::committed_steps(directory.path());
  } catch (const store::StoreError&) {
    return std::nullopt;  // the caller looks at the newest, meets the same error and says what to
                          // do
  }
  if (saved.empty()) return std::nullopt;
  const LossHistory losses = read_losses(directory.path(), model.guess_loss(plan));
  store::Step step = step_to_go_on_from(saved, losses);
  if (step == saved.front()) return std::nullopt;
  if (!recipe::stores_on_hosts(plan.recipe.hosts.backend)) {
    step = newest_whole(directory, {std::ranges::find(saved, step), saved.end()}, observer);
  }
  observer.note(
      fmt::format("step {} is the newest checkpoint that is known to be good: the losses of "
                  "the weights of step {} were not finite",
                  number(step), number(saved.front())));
  return step;
}

store::Resumable choose_resume_point(RunDirectory& directory, const plan::RunFile& run,
                                     std::optional<store::Step> from, const ModelQuestions& model,
                                     hosts::Rendezvous* rendezvous, RunObserver& observer) {
  if (from && std::ranges::count(store::committed_steps(directory.path()), *from) == 0) {
    throw base::UserError(base::ExitCode::bad_input, "{} has no checkpoint of step {}; it has: {}",
                          directory.path().string(), number(*from),
                          fmt::join(saved_steps(directory), ", "));
  }
  try {
    recover(directory, run, from, {}, model, rendezvous, observer);
  } catch (const base::UserError& error) {
    if (error.code() == base::ExitCode::interrupted || from) throw;
    refuse_to_go_back(directory, base::describe_failure(error));
  } catch (const store::StoreError& error) {
    if (from) throw;
    refuse_to_go_back(directory, base::describe_failure(error));
  }
  const bool on_hosts = is_on_hosts(run);
  const auto choose = [&] {
    return from ? chosen_by_user(directory, *from) : newest(directory, on_hosts);
  };
  std::string damage;
  try {
    return choose();
  } catch (const store::StoreError& error) {
    const bool corrupt = error.kind() == store::StoreError::Kind::corrupt;
    if (corrupt ? !on_hosts : from.has_value()) throw;
    if (!corrupt) refuse_to_go_back(directory, base::describe_failure(error));
    damage = error.what();
  }
  if (const base::Failure why =
          fetch_damaged(directory, run, from, {}, model, rendezvous, observer);
      !why.text.empty()) {
    refuse_to_go_back(directory,
                      {base::ExitCode::corrupt,
                       fmt::format("{}; it could not be fetched again: {}", damage, why.text)});
  }
  return choose();
}

std::optional<store::Resumable> restart_point(RunDirectory& directory, const plan::RunFile& run,
                                              std::optional<store::Step> from,
                                              const std::set<std::size_t>& lost,
                                              const ModelQuestions& model,
                                              hosts::Rendezvous* rendezvous,
                                              RunObserver& observer) {
  try {
    recover(directory, run, from, lost, model, rendezvous, observer);
  } catch (const base::UserError& error) {
    // A failure that may pass fails this attempt. A newer checkpoint is passed over only where
    // nothing can bring it back.
    if (from || error.code() != base::ExitCode::corrupt) throw;
    observer.note(fmt::format("an older checkpoint is used: {}", error.what()));
  }
  if (from) return chosen_by_user(directory, *from);
  std::optional<store::Resumable> found;
  bool damaged = false;
  try {
    found = store::choose_checkpoint(directory.path());
    damaged = found && !found->damage.empty();
  } catch (const store::StoreError& error) {
    if (error.kind() != store::StoreError::Kind::corrupt) throw;
    damaged = true;  // and there is no other one
  }
  if (damaged && is_on_hosts(run)) {
    const base::Failure why =
        fetch_damaged(directory, run, std::nullopt, lost, model, rendezvous, observer);
    const bool for_good = why.code == base::ExitCode::corrupt;
    if (!why.text.empty() && !for_good) throw base::UserError(why.code, why.text);
  }
  if (damaged) found = store::choose_checkpoint(directory.path());
  if (found && !found->warning.empty()) observer.note(found->warning);
  return found;
}

void go_on_from(const store::Checkpoint& checkpoint, const plan::Plan& plan,
                LaunchOptions& options) {
  options.resume = std::filesystem::absolute(checkpoint.path).string();
  options.from = checkpoint.manifest.step;
  options.caches = plan::decide_caches(checkpoint.manifest, plan);
  options.sync = plan::decide_sync(checkpoint.manifest, plan, options.without);
}

}  // namespace strait::run
