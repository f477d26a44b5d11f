#include "framework/store/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <utility>

#include "framework/store/atomic_file.h"
#include "framework/store/committed.h"
#include "framework/store/input_file.h"
#include "framework/store/store_error.h"

namespace strait::store {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifestName = "manifest.json";
constexpr std::uint64_t kManifestBytes = 16 << 20;
constexpr std::string_view kStepPrefix = "step-";

[[noreturn]] void refuse_checkpoint(const std::string& sentence) {
  throw StoreError(StoreError::Kind::corrupt, sentence);
}

void check_size(const fs::path& path, const ShardFile& shard) {
  std::error_code error;
  const std::uint64_t size = fs::file_size(path, error);
  if (error) {
    refuse_checkpoint(fmt::format("{} is missing; the manifest beside it lists it with {} bytes",
                                  path.string(), shard.size));
  }
  if (size != shard.size) {
    refuse_checkpoint(
        fmt::format("{} has {} bytes, the manifest says {}", path.string(), size, shard.size));
  }
}

void check_hash(const fs::path& path, const ShardFile& shard) {
  const FileSummary found = hash_file(path);
  if (found.hash != shard.hash) {
    refuse_checkpoint(fmt::format("{} is damaged: its hash is {}, the manifest says {}",
                                  path.string(), found.hash, shard.hash));
  }
}

// The steps of all directories that are named like a checkpoint, newest first.
std::vector<Step> steps_on_disk(const fs::path& run) {
  std::vector<Step> steps;
  std::error_code error;
  fs::directory_iterator entries(run / "checkpoints", error);
  if (error == std::errc::no_such_file_or_directory) return steps;
  if (error) throw system_error("list", run / "checkpoints", error.value());
  for (const fs::directory_entry& entry : entries) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kStepPrefix)) continue;
    std::int64_t step = 0;
    const char* end = name.data() + name.size();
    const auto [rest, problem] = std::from_chars(name.data() + kStepPrefix.size(), end, step);
    const bool is_step = problem == std::errc() && rest == end && step >= 0;
    // "step-007" is no checkpoint: names have no leading zeros.
    if (is_step && name == checkpoint_directory(run, Step{step}).filename()) {
      steps.push_back(Step{step});
    }
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

void remove_checkpoint(const fs::path& checkpoint) {
  // Manifest first: what is half removed must not pass for a checkpoint.
  std::error_code error;
  fs::remove(checkpoint / kManifestName, error);
  if (!error) sync_directory(checkpoint);
  if (!error) fs::remove_all(checkpoint, error);
  if (error) throw system_error("remove", checkpoint, error.value());
}

}  // namespace

bool is_committed(const fs::path& checkpoint) {
  std::error_code ignored;
  return fs::exists(checkpoint / kManifestName, ignored);
}

fs::path checkpoint_directory(const fs::path& run, Step step) {
  return run / "checkpoints" / fmt::format("{}{}", kStepPrefix, number(step));
}

std::string shard_name(std::int64_t stage, std::int64_t replica) {
  return fmt::format("stage-{}.replica-{}.safetensors", stage, replica);
}

std::string caches_name(std::int64_t stage, std::int64_t replica) {
  return fmt::format("stage-{}.replica-{}.caches.safetensors", stage, replica);
}

void withdraw_shard(const fs::path& checkpoint, const std::string& name) {
  if (is_committed(checkpoint)) return;
  std::error_code error;
  fs::remove(checkpoint / name, error);
  if (error) throw system_error("remove", checkpoint / name, error.value());
  fs::remove(checkpoint, error);  // succeeds for the last one: the directory is empty then
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
    if (is_committed(checkpoint)) {
      throw StoreError(StoreError::Kind::busy,
                       fmt::format("checkpoint {} is complete already; another process wrote it",
                                   checkpoint.string()));
    }
  });
}

Manifest open_checkpoint(const fs::path& checkpoint, Verify verify) {
  const fs::path path = checkpoint / kManifestName;
  if (!is_committed(checkpoint)) {
    refuse_checkpoint(
        fmt::format("{} is not complete: it has no {}", checkpoint.string(), kManifestName));
  }
  Manifest manifest = Manifest::parse(read_text_file(path, kManifestBytes), path.string());
  if (checkpoint.filename() != checkpoint_directory({}, manifest.step).filename()) {
    refuse_checkpoint(fmt::format("{} says it is of step {}: the directory was renamed or mixed up",
                                  path.string(), number(manifest.step)));
  }
  if (verify == Verify::manifest) return manifest;
  for (const ShardFile& shard : manifest.files) check_size(checkpoint / shard.name, shard);
  if (verify == Verify::hashes) {
    for (const ShardFile& shard : manifest.files) check_hash(checkpoint / shard.name, shard);
  }
  return manifest;
}

CheckpointList list_checkpoints(const fs::path& run, Verify verify) {
  CheckpointList list;
  for (const Step step : steps_on_disk(run)) {
    const fs::path path = checkpoint_directory(run, step);
    try {
      list.complete.push_back({path, open_checkpoint(path, verify)});
    } catch (const StoreError& error) {
      list.unusable.push_back({path, step, error.what(), is_committed(path)});
    }
  }
  return list;
}

std::optional<Resumable> choose_checkpoint(const fs::path& run) {
  std::string passed_over;
  bool any_committed = false;
  for (const Step step : steps_on_disk(run)) {
    const fs::path path = checkpoint_directory(run, step);
    try {
      Resumable found{{path, open_checkpoint(path, Verify::hashes)}, {}};
      if (!passed_over.empty()) {
        found.warning =
            fmt::format("going on from {}, because a newer checkpoint cannot be used: {}",
                        path.string(), passed_over);
      }
      return found;
    } catch (const StoreError& error) {
      any_committed = any_committed || is_committed(path);
      passed_over += (passed_over.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  if (any_committed) {
    refuse_checkpoint(
        fmt::format("no checkpoint of {} can be used: {}", run.string(), passed_over));
  }
  return std::nullopt;
}

std::vector<fs::path> set_aside_newer(const fs::path& run, Step step) {
  std::vector<fs::path> moved;
  for (const Step newer : steps_on_disk(run)) {
    if (newer <= step) break;
    const fs::path from = checkpoint_directory(run, newer);
    fs::path to;
    std::error_code error;
    for (int attempt = 1; to.empty() || fs::exists(to, error); ++attempt) {
      to = fmt::format("{}.aside-{}", from.string(), attempt);
    }
    fs::rename(from, to, error);
    if (error) throw system_error("move aside", from, error.value());
    moved.push_back(to);
  }
  if (!moved.empty()) sync_directory(run / "checkpoints");
  return moved;
}

std::vector<fs::path> prune_checkpoints(const fs::path& run, std::int64_t keep) {
  const CheckpointList list = list_checkpoints(run);
  std::vector<fs::path> removed;
  const auto kept = static_cast<std::size_t>(std::max<std::int64_t>(keep, 2));
  for (std::size_t i = kept; i < list.complete.size(); ++i) {
    removed.push_back(list.complete[i].path);
  }
  for (const Unusable& torn : list.unusable) {
    // A damaged one that was complete stays, for diagnosis.
    const bool old = !list.complete.empty() && torn.step < list.complete.front().manifest.step;
    if (old && !torn.committed) removed.push_back(torn.path);
  }
  for (const fs::path& path : removed) remove_checkpoint(path);
  if (!removed.empty()) sync_directory(run / "checkpoints");
  return removed;
}

void prune_all_but(const fs::path& run, const std::vector<Step>& steps) {
  if (steps.empty()) return;
  const Step newest = *std::ranges::max_element(steps);
  for (const Step step : steps_on_disk(run)) {
    if (step >= newest || std::ranges::find(steps, step) != steps.end()) continue;
    remove_checkpoint(checkpoint_directory(run, step));
  }
}

void remove_newer(const fs::path& run, Step step) {
  for (const Step newer : steps_on_disk(run)) {
    if (newer > step) remove_checkpoint(checkpoint_directory(run, newer));
  }
}

}  // namespace strait::store
