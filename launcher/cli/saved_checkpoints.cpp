#include "launcher/cli/saved_checkpoints.h"

#include "framework/store/atomic_file.h"
#include "framework/store/step_folders.h"
#include "framework/store/store_error.h"
#include "framework/store/verify_checkpoint.h"
#include "launcher/base/run_file_names.h"
#include "launcher/cli/remove_unless_complete.h"
#include "launcher/cli/run_options.h"
#include "launcher/run/run_storage.h"

namespace strait::cli {
namespace {

namespace fs = std::filesystem;
using State = SavedCheckpoint::State;

double time_of(const fs::path& file) {
  std::error_code error;
  const auto written = fs::last_write_time(file, error);
  if (error) return 0;
  return std::chrono::duration<double>(std::chrono::file_clock::to_sys(written).time_since_epoch())
      .count();
}

bool has_file(const fs::path& checkpoint, const store::ShardFile& file) {
  return store::has_size(checkpoint / file.name, file.size);
}

// Where processes of the plan have written the files that are not here.
std::vector<std::string> hosts_of_rest(const SavedCheckpoint& one, const store::Manifest& manifest,
                                       const plan::Plan& plan) {
  std::set<std::string> hosts;
  for (const plan::WrittenShard& shard : plan::written_shards(plan, manifest.files)) {
    if (!has_file(one.path, shard.file)) hosts.insert(plan.process(shard.process).host);
  }
  return {hosts.begin(), hosts.end()};
}

// Files that are still on the run's hosts alone are no damage.
store::Part part_to_check(const fs::path& checkpoint, const plan::Plan& plan) {
  const store::Part part = run::part_here(plan);
  if (!recipe::stores_on_hosts(plan.recipe.hosts.backend)) return part;
  const store::Manifest manifest = store::open_checkpoint(checkpoint, store::Verify::manifest);
  const auto is_here = [&](const store::ShardFile& file) {
    std::error_code unknown;
    return fs::exists(checkpoint / file.name, unknown) || unknown;
  };
  return std::ranges::all_of(store::files_of(manifest, part), is_here) ? part : store::Part::none;
}

void describe_complete(SavedCheckpoint& one, const plan::Plan& plan) {
  const store::Manifest manifest =
      store::open_checkpoint(one.path, store::Verify::sizes, part_to_check(one.path, plan));
  const auto has = [&](store::Part part) {
    return std::ranges::all_of(store::files_of(manifest, part),
                               [&](const auto& file) { return has_file(one.path, file); });
  };
  one.here = has(store::Part::all)       ? store::Part::all
             : has(store::Part::weights) ? store::Part::weights
                                         : store::Part::none;
  one.hosts = hosts_of_rest(one, manifest, plan);
  one.files = std::ssize(manifest.files);
  for (const store::ShardFile& file : manifest.files) one.bytes += file.size;
}

// What is here of it. Returns the bytes.
std::uint64_t copy_checkpoint(const store::Checkpoint& checkpoint, const fs::path& folder,
                              const RemoveUnlessComplete& copy) {
  store::make_directory(folder);
  std::uint64_t bytes = 0;
  bool whole = true;
  for (const store::ShardFile& file : checkpoint.manifest.files) {
    if (!store::is_present(checkpoint.path / file.name)) {
      whole = false;
      continue;
    }
    copy.check();
    store::copy_shard(checkpoint.path / file.name, folder / file.name, file);
    bytes += file.size;
  }
  store::commit_checkpoint(folder, checkpoint.manifest, {},
                           whole ? store::Shards::here : store::Shards::elsewhere);
  return bytes;
}

// The weights under the run's adapters, if the run keeps them itself. Returns the bytes.
std::uint64_t copy_own_base(const fs::path& run, const fs::path& target, plan::RunFile& file,
                            const RemoveUnlessComplete& whole) {
  const std::optional<fs::path> base = plan::own_base(run, file.plan);
  if (!base) return 0;
  const fs::path copy =
      fs::absolute(target / plan::kBaseFolder / base->filename()).lexically_normal();
  std::uint64_t bytes = 0;
  try {
    bytes =
        copy_checkpoint({*base, store::open_checkpoint(*base, store::Verify::sizes)}, copy, whole);
  } catch (const store::StoreError& error) {
    if (error.kind() != store::StoreError::Kind::corrupt) throw;
    throw base::UserError(base::ExitCode::corrupt,
                          "{}; adapters of all steps were trained over these weights",
                          error.what());
  }
  file.recipe_hash = plan::recipe_hash(file);  // checkpoints have that of the former path
  file.plan.recipe.model.weights_run = copy.string();
  return bytes;
}

// The rows that the run has made of its data; those of a user's token file stay where they are.
void copy_rows(const fs::path& run, const fs::path& target, plan::Plan::Data& data) {
  const fs::path file = data.file;
  if (file.parent_path() != fs::absolute(run / plan::kRowsFolder).lexically_normal()) return;
  store::make_directory(target / plan::kRowsFolder);
  const fs::path copy =
      fs::absolute(target / plan::kRowsFolder / file.filename()).lexically_normal();
  store::copy_file(file, copy);
  data.file = copy.string();
}

}  // namespace

const char* name_of(State state) {
  switch (state) {
    case State::complete:
      return "complete";
    case State::damaged:
      return "damaged";
    case State::foreign:
      return "of another build";
    case State::unfinished:
      return "unfinished";
    case State::aside:
      break;
  }
  return "set aside";
}

const char* name_of_part(store::Part part) {
  return part == store::Part::all ? "all" : part == store::Part::weights ? "weights" : "none";
}

std::vector<SavedCheckpoint> saved_checkpoints(const fs::path& run, const plan::Plan& plan) {
  std::vector<SavedCheckpoint> list;
  for (const store::StepFolder& folder : store::step_folders(run)) {
    SavedCheckpoint one{.path = folder.path, .step = folder.step, .hosts = {}, .problem = {}};
    one.saved = time_of(folder.path / store::kManifestName);
    if (folder.aside) {
      one.state = State::aside;
      one.problem = "another launch went on from an older one; the next checkpoint removes it";
    } else if (!store::is_committed(folder.path)) {
      one.state = State::unfinished;
      one.problem = "it has no manifest: it is being written, or its writer died";
    } else {
      try {
        describe_complete(one, plan);
      } catch (const store::StoreError& error) {
        using Kind = store::StoreError::Kind;
        if (error.kind() == Kind::storage_io || error.kind() == Kind::denied) throw;
        one.state =
            error.kind() == store::StoreError::Kind::corrupt ? State::damaged : State::foreign;
        one.problem = error.what();
      }
    }
    list.push_back(std::move(one));
  }
  return list;
}

std::vector<std::string> mark_damaged(std::vector<SavedCheckpoint>& list, const plan::Plan& plan,
                                      std::int64_t keep, std::optional<store::Step> good,
                                      const store::BestRule& best) {
  std::vector<std::string> sentences;
  std::int64_t intact = 0;
  for (SavedCheckpoint& one : list) {
    const bool may_be_good = good && one.step <= *good;
    const bool may_be_best = std::ranges::find(best.order, one.step) != best.order.end();
    const bool may_stay = intact < keep || may_be_good || may_be_best;
    if (one.state != State::complete || !may_stay) continue;
    const auto damage = store::verify_checkpoint(one.path, run::part_here(plan)).damage;
    if (damage.empty()) {
      ++intact;
      if (may_be_good) good.reset();
      continue;
    }
    one.state = State::damaged;
    one.problem = damage.front().sentence;
    for (const store::Damage& each : damage) sentences.push_back(each.sentence);
  }
  return sentences;
}

std::string intact_instead(const std::vector<SavedCheckpoint>& list, const plan::Plan& plan,
                           store::Step damaged) {
  std::vector<SavedCheckpoint> others;
  std::ranges::copy_if(list, std::back_inserter(others), [damaged](const SavedCheckpoint& one) {
    return one.step != damaged && one.here != store::Part::none;
  });
  try {
    mark_damaged(others, plan, 1);
  } catch (const store::StoreError&) {
    return "";  // the caller has an error to report already
  }
  const auto intact = std::ranges::find(others, State::complete, &SavedCheckpoint::state);
  if (intact == others.end()) return "; no other checkpoint here is intact";
  return fmt::format("; step {} is intact: copy it with --step {}", number(intact->step),
                     number(intact->step));
}

std::vector<store::Step> kept_steps(const std::vector<SavedCheckpoint>& list, std::int64_t keep,
                                    std::optional<std::int64_t> every,
                                    std::optional<store::Step> good, const store::BestRule& best) {
  std::vector<store::Step> complete;
  for (const SavedCheckpoint& one : list) {
    if (one.state == State::complete) complete.push_back(one.step);
  }
  if (complete.empty()) return {};
  const store::Step oldest =
      complete[std::min(complete.size(), static_cast<std::size_t>(keep)) - 1];
  std::vector<store::Step> kept = store::steps_to_keep(complete, keep, good, best);
  for (const store::Step step : complete) {
    const bool added = std::ranges::find(kept, step) == kept.end();
    if (added && every && number(step) % *every == 0) kept.push_back(step);
  }
  for (const SavedCheckpoint& one : list) {
    const bool committed = one.state == State::damaged || one.state == State::foreign;
    // Of another build: only that build can say what is in it.
    if (committed && (one.state == State::foreign || one.step > oldest)) {
      kept.push_back(one.step);
    }
  }
  std::ranges::sort(kept, std::ranges::greater());
  return kept;
}

CopiedRun copy_run(const fs::path& run, const fs::path& target,
                   const store::Checkpoint& checkpoint) {
  check_new_or_empty(target, "copy into a new folder");
  plan::RunFile file = read_run(run);
  const bool whole = std::ranges::all_of(
      store::files_of(checkpoint.manifest, store::Part::all),
      [&](const store::ShardFile& one) { return store::is_present(checkpoint.path / one.name); });
  CopiedRun copied{checkpoint.manifest.step, whole ? store::Part::all : store::Part::weights, 0};
  RemoveUnlessComplete copy(target);
  store::make_directory(target);
  plan::protect_secrets(target, file.plan.recipe);
  copied.bytes =
      copy_checkpoint(checkpoint, store::checkpoint_directory(target, copied.step), copy);
  copied.bytes += copy_own_base(run, target, file, copy);
  copy_rows(run, target, file.plan.train);
  if (file.plan.eval) copy_rows(run, target, *file.plan.eval);
  for (const char* name : {base::kRecipeFile, base::kMetricsFile, base::kEventsFile}) {
    if (store::is_present(run / name)) store::copy_file(run / name, target / name);
  }
  // Hosts and locks distinguish runs by it.
  file.run = net::RunId::random();
  plan::write_run_file(target / base::kPlanFile, file);
  copy.complete();
  return copied;
}

}  // namespace strait::cli
