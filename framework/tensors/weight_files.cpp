#include "framework/tensors/weight_files.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "framework/store/bounded_json.h"
#include "framework/store/store_error.h"

namespace strait::tensors {
namespace {

constexpr std::uint64_t kIndexBytes = 100'000'000;
constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

[[noreturn]] void refuse_weights(const std::string& sentence) {
  throw store::StoreError(store::StoreError::Kind::bad_input, sentence);
}

// A path that a file from outside gave: it must stay below the directory of that file.
std::filesystem::path inside(const std::filesystem::path& index, const std::string& name) {
  const std::filesystem::path relative(name);
  const bool climbs = std::any_of(relative.begin(), relative.end(),
                                  [](const std::filesystem::path& part) { return part == ".."; });
  if (name.empty() || relative.is_absolute() || climbs || name.find('\0') != std::string::npos) {
    refuse_weights(fmt::format("{}: the shard \"{}\" is not a name inside the directory",
                               index.string(), name));
  }
  return index.parent_path() / relative;
}

// Tensor name to shard name, as the index says.
std::map<std::string, std::string> read_weight_map(const std::filesystem::path& index) {
  nlohmann::json root;
  try {
    root = store::parse_bounded_json(store::read_text_file(index, kIndexBytes));
  } catch (const store::JsonError& error) {
    refuse_weights(fmt::format("{} is not valid: {}", index.string(), error.what()));
  }
  const auto map = root.is_object() ? root.find("weight_map") : root.end();
  if (!root.is_object() || map == root.end() || !map->is_object() || map->empty()) {
    refuse_weights(
        fmt::format("{} has no \"weight_map\" of tensor names to files", index.string()));
  }
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) {
      refuse_weights(
          fmt::format("{}: the file of tensor \"{}\" is not a name", index.string(), tensor));
    }
    files[tensor] = file.get<std::string>();
  }
  return files;
}

}  // namespace

WeightFiles::WeightFiles(std::filesystem::path directory) : directory_(std::move(directory)) {
  std::error_code ignored;
  if (std::filesystem::exists(directory_ / kSingle, ignored)) {
    open_shard(directory_ / kSingle);
  } else if (std::filesystem::exists(directory_ / kIndex, ignored)) {
    open_index(directory_ / kIndex);
  } else if (std::filesystem::exists(directory_ / "pytorch_model.bin", ignored) ||
             std::filesystem::exists(directory_ / "pytorch_model.bin.index.json", ignored)) {
    refuse_weights(fmt::format(
        "{} holds its weights as pytorch_model.bin only, a format that can run code when it is "
        "read; convert it once: load it with transformers and save_pretrained it, which writes "
        "model.safetensors",
        directory_.string()));
  } else {
    refuse_weights(
        fmt::format("{} holds neither {} nor {}; set weights = \"random\" to start "
                    "without them",
                    directory_.string(), kSingle, kIndex));
  }
  for (const auto& [name, shard] : where_) tensors_.push_back({*shard->find(name), shard->path()});
}

void WeightFiles::open_index(const std::filesystem::path& index) {
  const std::map<std::string, std::string> weight_map = read_weight_map(index);
  std::set<std::string> files;
  for (const auto& [tensor, file] : weight_map) files.insert(file);
  for (const std::string& file : files) {
    const std::filesystem::path path = inside(index, file);
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) {
      refuse_weights(fmt::format("{} is missing; {} lists it", path.string(), index.string()));
    }
    open_shard(path);
  }
  for (const auto& [tensor, file] : weight_map) {
    const auto found = where_.find(tensor);
    if (found == where_.end() || found->second->path() != inside(index, file)) {
      refuse_weights(fmt::format("{} does not hold tensor \"{}\", which {} says is there",
                                 inside(index, file).string(), tensor, index.string()));
    }
  }
}

void WeightFiles::open_shard(const std::filesystem::path& file) {
  shards_.push_back(std::make_unique<SafetensorsReader>(file));
  const SafetensorsReader* shard = shards_.back().get();
  for (const store::TensorInfo& info : shard->tensors()) {
    const auto [place, added] = where_.emplace(info.name, shard);
    if (!added) {
      refuse_weights(fmt::format("tensor \"{}\" is in {} and in {}", info.name,
                                 place->second->path().string(), file.string()));
    }
  }
}

const WeightFiles::Entry* WeightFiles::find(const std::string& name) const {
  const auto found = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const Entry& entry, const std::string& wanted) { return entry.info.name < wanted; });
  return found == tensors_.end() || found->info.name != name ? nullptr : &*found;
}

at::Tensor WeightFiles::read(const std::string& name) const { return shard_of(name).read(name); }

at::Tensor WeightFiles::read_row(const std::string& name, std::int64_t row) const {
  return shard_of(name).read_row(name, row);
}

const SafetensorsReader& WeightFiles::shard_of(const std::string& name) const {
  const auto found = where_.find(name);
  if (found == where_.end()) {
    refuse_weights(fmt::format("{} holds no tensor \"{}\"", directory_.string(), name));
  }
  return *found->second;
}

}  // namespace strait::tensors
