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
