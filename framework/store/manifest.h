#pragma once

#include <filesystem>
#include <map>
#include <vector>

#include "framework/fields/fields.h"
#include "framework/store/sample.h"

namespace strait::store {

// The name of the manifest in a checkpoint's directory. A larger file is not read.
inline constexpr const char* kManifestName = "manifest.json";
inline constexpr std::uint64_t kMostManifestBytes = std::uint64_t{16} << 20;

// One file of a checkpoint, at the time when it was written.
struct ShardFile {
  std::string name;  // inside the checkpoint's directory
  std::uint64_t size = 0;
  std::string hash;
  bool operator==(const ShardFile&) const = default;
};
// Here, because control messages have it, too.
void describe(auto& f, fields::Is<ShardFile> auto& m) {
  f("name", m.name), f("size", m.size), f("hash", m.hash);
}

// The parts first to last (inclusive) that a process held.
struct Share {
  std::int64_t stage = 0;
  std::int64_t replica = 0;
  std::int64_t first = 0;
  std::int64_t last = 0;
  bool operator==(const Share&) const = default;
};

struct DataPosition {
  std::string hash;  // of the token file's content
  std::int64_t rows = 0;
  Step next_step{};  // the first step not yet trained
  bool operator==(const DataPosition&) const = default;
};

// The description of a checkpoint: everything that must match before a run resumes from it, and the
// size and hash of every file. A value; conversion to and from text is pure.
struct Manifest {
  static constexpr std::int64_t kFormatVersion = 1;

  std::string run_id;
  std::int64_t generation = 0;
  Step step{};  // updates made
  std::string model_hash;
  std::string recipe_hash;
  std::string plan_hash;
  std::string build;
  std::vector<Share> layout;
  DataPosition data;
  std::int64_t codec_generation = 0;
  std::map<std::string, std::string> sync;   // state of the sync method other than tensors
  std::map<std::string, std::string> notes;  // for people
  std::vector<ShardFile> files;

  bool operator==(const Manifest&) const = default;

  // Throws StoreError that starts with `file` and names the field. corrupt: damage; the text
  // contains its own hash, so one flipped bit is detected. mismatch: a format version that this
  // build cannot read.
  static Manifest parse(std::string_view text, const std::string& file);
  std::string format() const;
};

// The differences that forbid resuming from this checkpoint, one line each: "recipe_hash:
// checkpoint 1f…, run 77…". Empty: it fits. Compares model_hash, recipe_hash, data.hash and
// data.rows.
std::vector<std::string> differences(const Manifest& checkpoint, const Manifest& run);

// The files of a checkpoint, by their names.

std::string shard_name(std::int64_t stage,
                       std::int64_t replica);  // "stage-0.replica-0.safetensors"
// The second shard of a process, without which a run can continue: its activation caches.
std::string caches_name(std::int64_t stage,
                        std::int64_t replica);  // "stage-0.replica-0.caches.safetensors"

// The third one: the weights of the model, which are all that reading the model takes.
std::string weights_name(std::int64_t stage,
                         std::int64_t replica);  // "stage-0.replica-0.weights.safetensors"
// The hashes of their tensors (tensor_hashes.h), which only help to name damage; a run does not
// need them.
inline constexpr std::string_view kHashesSuffix = ".safetensors.hashes";
std::string hashes_name(std::int64_t stage,
                        std::int64_t replica);  // "stage-0.replica-0.safetensors.hashes"
// All files of one process.
std::vector<std::string> file_names(std::int64_t stage, std::int64_t replica);

// Which part of a checkpoint is asked for: its commit only, its weights, or everything that a run
// resumes from.
enum class Part { none, weights, all };
// No part contains hashes of tensors.
std::vector<ShardFile> files_of(const Manifest& manifest, Part part);

// Whether the file exists and has this size.
bool has_size(const std::filesystem::path& path, std::uint64_t bytes);

}  // namespace strait::store
