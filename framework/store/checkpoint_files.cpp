#include "framework/store/checkpoint_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <system_error>

namespace strait::store {
namespace {

constexpr std::string_view kWeightsSuffix = ".weights.safetensors";

}  // namespace

std::string shard_name(std::int64_t stage, std::int64_t replica) {
  return fmt::format("stage-{}.replica-{}.safetensors", stage, replica);
}

std::string caches_name(std::int64_t stage, std::int64_t replica) {
  return fmt::format("stage-{}.replica-{}.caches.safetensors", stage, replica);
}

std::string weights_name(std::int64_t stage, std::int64_t replica) {
  return fmt::format("stage-{}.replica-{}{}", stage, replica, kWeightsSuffix);
}

std::string hashes_name(std::int64_t stage, std::int64_t replica) {
  return fmt::format("stage-{}.replica-{}{}", stage, replica, kHashesSuffix);
}

std::vector<std::string> file_names(std::int64_t stage, std::int64_t replica) {
  return {weights_name(stage, replica), shard_name(stage, replica), caches_name(stage, replica),
          hashes_name(stage, replica)};
}

std::vector<ShardFile> files_of(const Manifest& manifest, Part part) {
  std::vector<ShardFile> files = manifest.files;
  if (part == Part::none) return {};
  const auto is = [](std::string_view suffix) {
    return [suffix](const ShardFile& file) { return file.name.ends_with(suffix); };
  };
  std::erase_if(files, is(kHashesSuffix));
  if (part == Part::all) return files;
  std::erase_if(files, std::not_fn(is(kWeightsSuffix)));
  return files;
}

bool has_size(const std::filesystem::path& path, std::uint64_t bytes) {
  std::error_code error;
  return std::filesystem::file_size(path, error) == bytes && !error;
}

}  // namespace strait::store
