#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "framework/store/manifest.h"

// The files of a checkpoint, by their names.
namespace strait::store {

std::string shard_name(std::int64_t stage,
                       std::int64_t replica);  // "stage-0.replica-0.safetensors"
// A second shard of the same process, which a run can go on without: what it remembers of samples.
std::string caches_name(std::int64_t stage,
                        std::int64_t replica);  // "stage-0.replica-0.caches.safetensors"

// A third one: the weights of the model, all that reading the model takes.
std::string weights_name(std::int64_t stage,
                         std::int64_t replica);  // "stage-0.replica-0.weights.safetensors"
// And the hashes of their tensors (tensor_hashes.h), which only name damage: nothing goes on from
// them.
inline constexpr std::string_view kHashesSuffix = ".safetensors.hashes";
std::string hashes_name(std::int64_t stage,
                        std::int64_t replica);  // "stage-0.replica-0.safetensors.hashes"
// All of them: the files of one process.
std::vector<std::string> file_names(std::int64_t stage, std::int64_t replica);

// What is asked of a checkpoint: that it was committed, its weights, or everything that a run goes
// on with.
enum class Part { none, weights, all };
// Hashes of tensors are in no part.
std::vector<ShardFile> files_of(const Manifest& manifest, Part part);

// The file is there, and is this long.
bool has_size(const std::filesystem::path& path, std::uint64_t bytes);

}  // namespace strait::store
