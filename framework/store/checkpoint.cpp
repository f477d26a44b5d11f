#include "framework/store/checkpoint.h"

#include <algorithm>

#include "framework/store/atomic_file.h"
#include "framework/store/input_file.h"
#include "framework/store/step_folders.h"
#include "framework/store/store_error.h"

namespace strait::store {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_checkpoint(const std::string& sentence) {
  throw StoreError(StoreError::Kind::corrupt, sentence);
}

void check_size(const fs::path& path, const ShardFile& shard) {
  std::error_code error;
  const std::uint64_t size = fs::file_size(path, error);
  // Only these errors describe the disk. After any other error the shard may be complete.
  const bool missing = error == std::errc::no_such_file_or_directory ||
                       error == std::errc::not_a_directory || error == std::errc::is_a_directory;
  if (error && !missing) throw system_error("look at", path, error.value());
  if (missing) {
    refuse_checkpoint(fmt::format("{} is missing; the manifest lists it with {} bytes",
                                  path.string(), shard.size));
  }
  if (size != shard.size) {
    refuse_checkpoint(
        fmt::format("{} has {} bytes, the manifest says {}", path.string(), size, shard.size));
  }
}

void check_hash(const fs::path& path, const FileSummary& found, const ShardFile& shard) {
  if (found != FileSummary{shard.size, shard.hash}) {
    refuse_checkpoint(fmt::format("{} is damaged: its hash is {}, the manifest says {}",
                                  path.string(), found.hash, shard.hash));
  }
}

// The steps of all checkpoint folders, newest first.
std::vector<Step> steps_on_disk(const fs::path& run) {
  std::vector<Step> steps;
  for (const StepFolder& folder : step_folders(run)) {
    if (!folder.aside) steps.push_back(folder.step);
  }
  return steps;
}

// Removes as much as possible, and throws the first error at the end.
void remove_checkpoint(const fs::path& checkpoint) {
  // The manifest goes first: a half removed checkpoint must not look complete. If the manifest
  // cannot be removed, the shards stay too.
  std::error_code error;
  fs::remove(checkpoint / kManifestName, error);
  if (error) throw system_error("remove", checkpoint / kManifestName, error.value());
  const bool there = fs::exists(checkpoint, error);
  if (error) throw system_error("look at", checkpoint, error.value());
  // Before any shard goes: a power cut must not bring back a manifest without its shards.
  if (there) sync_directory(checkpoint);
  std::error_code first;
  fs::path stays = checkpoint;
  for (const fs::path& entry : entries_of(checkpoint)) {
    fs::remove_all(entry, error);
    if (error && !first) {
      first = error;
      stays = entry;
    }
  }
  if (!first) fs::remove(checkpoint, first);
  if (first) throw system_error("remove", stays, first.value());
}

// The same for a caller that continues: the error becomes part of the result.
void remove_checkpoint(const fs::path& checkpoint, Pruned& result) {
  try {
    remove_checkpoint(checkpoint);
    result.removed.push_back(checkpoint);
  } catch (const StoreError& error) {
    result.left.push_back({checkpoint, error.what()});
  }
}

// False only if there is certainly no manifest.
bool may_be_committed(const fs::path& checkpoint) {
  std::error_code error;
  return fs::exists(checkpoint / kManifestName, error) || error;
}

// The first step-N.aside-K that does not exist.
fs::path free_place_aside(const fs::path& checkpoint) {
  for (int attempt = 1;; ++attempt) {
    fs::path to = fmt::format("{}{}{}", checkpoint.string(), kAsideInfix, attempt);
    std::error_code error;
    const bool taken = fs::exists(to, error);
    if (error) throw system_error("look at", to, error.value());
    if (!taken) return to;
  }
}

// Files that a dead process left in a checkpoint that others completed: a temporary file, or a
// shard that the manifest does not list. Other files do not belong to strait and stay.
bool is_leftover(const std::string& name, const Manifest& manifest) {
  const auto listed = [&name](const ShardFile& file) { return file.name == name; };
  if (name == kManifestName || std::ranges::any_of(manifest.files, listed)) return false;
  const bool shard = name.starts_with("stage-") && name.find(".safetensors") != std::string::npos;
  const bool temporary = name.find(".tmp-") != std::string::npos;
  return shard || (temporary && name.starts_with(kManifestName));
}

void remove_leftovers(const Checkpoint& checkpoint, Pruned& result) {
  for (const fs::path& entry : entries_of(checkpoint.path)) {
    if (!is_leftover(entry.filename().string(), checkpoint.manifest)) continue;
    std::error_code error;
    fs::remove(entry, error);
    if (error) result.left.push_back({entry, system_error("remove", entry, error.value()).what()});
  }
}

// Runs one pruning. An error that ends it (the folder cannot be listed) is reported like the
// others.
template <class Work>
Pruned prune(const fs::path& run, const Work& work) {
  Pruned result;
  try {
    work(result);
    if (!result.removed.empty()) sync_directory(run / kCheckpointsFolder);
  } catch (const StoreError& error) {
    result.left.push_back({run / kCheckpointsFolder, error.what()});
  }
  return result;
}

}  // namespace

bool is_committed(const fs::path& checkpoint) {
  std::error_code error;
  const bool there = fs::exists(checkpoint / kManifestName, error);
  if (error) throw system_error("look at", checkpoint / kManifestName, error.value());
  return there;
}

fs::path checkpoint_directory(const fs::path& run, Step step) {
  return run / kCheckpointsFolder / fmt::format("{}{}", kStepPrefix, number(step));
}

void withdraw_shard(const fs::path& checkpoint, const std::string& name) {
  // The commit may have come before the order to withdraw; a complete checkpoint is never changed.
  if (is_committed(checkpoint)) return;
  std::error_code error;
  fs::remove(checkpoint / name, error);
  if (error) throw system_error("remove", checkpoint / name, error.value());
  fs::remove(checkpoint, error);  // succeeds after the last shard, when the directory is empty
}

void copy_shard(const fs::path& from, const fs::path& to, const ShardFile& shard) {
  check_hash(from, store::copy_file(from, to), shard);
}

void commit_checkpoint(const fs::path& checkpoint, const Manifest& manifest,
                       const std::function<void()>& may_commit, Shards shards) {
  if (checkpoint.filename() != checkpoint_directory({}, manifest.step).filename()) {
    throw std::invalid_argument(
        fmt::format("a manifest of step {} for {}", number(manifest.step), checkpoint.string()));
  }
  if (shards == Shards::here) {
    for (const ShardFile& shard : manifest.files) check_size(checkpoint / shard.name, shard);
  }
  make_directory(checkpoint);
  const std::string text = manifest.format();
  AtomicFile file(checkpoint / kManifestName, text.size());
  file.write(std::as_bytes(std::span(text)));
  file.commit([&checkpoint, &may_commit] {
    if (may_commit) may_commit();
    // Checked at the last moment: another generation may have committed meanwhile.
    if (is_committed(checkpoint)) {
      throw StoreError(StoreError::Kind::busy,
                       "checkpoint {} is complete already; another process wrote it",
                       checkpoint.string());
    }
  });
}

Manifest open_checkpoint(const fs::path& checkpoint, Verify verify, Part part) {
  const fs::path path = checkpoint / kManifestName;
  if (!is_committed(checkpoint)) {
    refuse_checkpoint(
        fmt::format("{} is not complete: it has no {}", checkpoint.string(), kManifestName));
  }
  Manifest manifest = Manifest::parse(read_text_file(path, kMostManifestBytes), path.string());
  if (checkpoint.filename() != checkpoint_directory({}, manifest.step).filename()) {
    refuse_checkpoint(fmt::format("{} says it is of step {}: the directory was renamed or mixed up",
                                  path.string(), number(manifest.step)));
  }
  if (verify == Verify::manifest) return manifest;
  const std::vector<ShardFile> files = files_of(manifest, part);
  for (const ShardFile& shard : files) check_size(checkpoint / shard.name, shard);
  if (verify == Verify::hashes) {
    for (const ShardFile& shard : files) {
      check_hash(checkpoint / shard.name, hash_file(checkpoint / shard.name), shard);
    }
  }
  return manifest;
}

CheckpointList list_checkpoints(const fs::path& run, Verify verify, Part part) {
  CheckpointList list;
  for (const Step step : steps_on_disk(run)) {
    const fs::path path = checkpoint_directory(run, step);
    try {
      list.complete.push_back({path, open_checkpoint(path, verify, part)});
    } catch (const StoreError& error) {
      using Kind = StoreError::Kind;
      // A disk that cannot be read says nothing about a checkpoint, so none may be passed over.
      if (error.kind() == Kind::storage_io || error.kind() == Kind::denied) throw;
      list.unusable.push_back({path, step, error.what(), is_committed(path)});
    }
  }
  return list;
}

std::optional<Resumable> choose_checkpoint(const fs::path& run, Part part) {
  std::string passed_over;
  std::string damage;
  const auto add = [](std::string& list, const char* reason) {
    list += (list.empty() ? "" : "; ") + std::string(reason);
  };
  for (const Step step : steps_on_disk(run)) {
    const fs::path path = checkpoint_directory(run, step);
    try {
      Resumable found{{path, open_checkpoint(path, Verify::hashes, part)}, {}, damage};
      if (!passed_over.empty()) {
        found.warning =
            fmt::format("going on from {}, because a newer checkpoint cannot be used: {}",
                        path.string(), passed_over);
      }
      return found;
    } catch (const StoreError& error) {
      if (error.kind() != StoreError::Kind::corrupt) throw;
      add(passed_over, error.what());
      if (is_committed(path)) add(damage, error.what());
    }
  }
  if (!damage.empty()) {
    refuse_checkpoint(
        fmt::format("no checkpoint of {} can be used: {}", run.string(), passed_over));
  }
  return std::nullopt;
}

std::vector<Step> committed_steps(const fs::path& run) {
  std::vector<Step> steps = steps_on_disk(run);
  std::erase_if(steps,
                [&run](Step step) { return !may_be_committed(checkpoint_directory(run, step)); });
  return steps;
}

std::vector<fs::path> set_aside_newer(const fs::path& run, Step step, Uncommitted uncommitted) {
  std::vector<fs::path> moved;
  for (const Step newer : steps_on_disk(run)) {
    if (newer <= step) break;
    const fs::path from = checkpoint_directory(run, newer);
    const bool committed = may_be_committed(from);
    if (!committed && uncommitted == Uncommitted::remove) {
      Pruned result;
      remove_checkpoint(from, result);
      if (result.left.empty()) continue;
    }
    const fs::path to = free_place_aside(from);
    std::error_code error;
    fs::rename(from, to, error);
    // A folder without manifest is not in the way: its shards will be overwritten.
    if (error && !committed) continue;
    if (error) throw system_error("move aside", from, error.value());
    moved.push_back(to);
  }
  if (!moved.empty()) sync_directory(run / kCheckpointsFolder);
  return moved;
}

std::optional<Step> newest_good(const std::vector<Step>& steps, std::optional<Step> good) {
  const auto found = std::ranges::find_if(steps, [&](Step step) { return good && step <= *good; });
  if (found == steps.end()) return std::nullopt;
  return *found;
}

std::vector<Step> best_of(const std::vector<Step>& steps, const BestRule& rule) {
  std::vector<Step> best;
  for (const Step step : rule.order) {
    if (std::ssize(best) >= rule.keep) break;
    if (std::ranges::find(steps, step) != steps.end()) best.push_back(step);
  }
  return best;
}

std::vector<Step> steps_to_keep(const std::vector<Step>& complete, std::int64_t keep,
                                std::optional<Step> good, const BestRule& best) {
  std::vector<Step> kept = complete;
  kept.resize(std::min(complete.size(), static_cast<std::size_t>(keep)));
  std::vector<Step> others = best_of(complete, best);
  if (const auto proven = newest_good(complete, good)) others.push_back(*proven);
  for (const Step step : others) {
    if (std::ranges::find(kept, step) == kept.end()) kept.push_back(step);
  }
  std::ranges::sort(kept, std::ranges::greater());
  return kept;
}

Pruned prune_checkpoints(const fs::path& run, const PruneRule& rule, PruneTime time) {
  return prune(run, [&](Pruned& result) {
    const CheckpointList list = list_checkpoints(run, Verify::sizes, rule.part);
    if (list.complete.empty()) return;
    std::vector<Step> complete;
    complete.reserve(list.complete.size());
    for (const Checkpoint& one : list.complete) complete.push_back(one.manifest.step);
    // Two at least: if the newest turns out damaged, the run must not start from scratch.
    const std::int64_t keep = std::max<std::int64_t>(rule.keep, 2);
    const std::vector<Step> kept = steps_to_keep(complete, keep, rule.good, rule.best);
    const Step newest = kept.front();
    for (const Checkpoint& one : list.complete) {
      if (std::ranges::find(kept, one.manifest.step) != kept.end()) {
        remove_leftovers(one, result);
      } else {
        remove_checkpoint(one.path, result);
      }
    }
    // The files of an unusable checkpoint may be intact on a host. It stays while fewer than `keep`
    // are complete, and while it may be the newest that is known to be good, or one of the best.
    std::vector<Step> committed = complete;
    for (const Unusable& one : list.unusable) {
      if (one.committed) committed.push_back(one.step);
    }
    const std::vector<Step> best = best_of(committed, rule.best);
    const Step oldest = steps_to_keep(complete, keep, rule.good).back();
    const auto is_replaced = [&](Step unusable) {
      const bool good = newest_good({unusable}, rule.good).has_value();
      return std::ssize(complete) >= keep && unusable < oldest &&
             (!good || newest_good(complete, rule.good)) &&
             std::ranges::find(best, unusable) == best.end();
    };
    for (const Unusable& one : list.unusable) {
      const bool goes = one.committed ? is_replaced(one.step) : one.step < newest;
      if (goes) remove_checkpoint(one.path, result);
    }
    for (const StepFolder& folder : step_folders(run)) {
      // At a start it may have just been set aside, with nothing newer yet.
      const bool replaced = time == PruneTime::after_commit || folder.step <= newest;
      if (folder.aside && replaced) remove_checkpoint(folder.path, result);
    }
  });
}

Pruned prune_all_but(const fs::path& run, const std::vector<Step>& steps) {
  return prune(run, [&](Pruned& result) {
    if (steps.empty()) return;
    const Step newest = *std::ranges::max_element(steps);
    for (const StepFolder& folder : step_folders(run)) {
      const bool kept =
          folder.step >= newest || std::ranges::find(steps, folder.step) != steps.end();
      if (folder.aside || !kept) remove_checkpoint(folder.path, result);
    }
  });
}

}  // namespace strait::store
