#include "framework/store/weight_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "framework/fields/bounded_json.h"
#include "framework/store/store_error.h"

namespace strait::store {
namespace {

[[noreturn]] void refuse_index(const std::string& sentence) {
  throw StoreError(StoreError::Kind::bad_input, sentence);
}

bool is_inside(const std::string& name) {
  const std::filesystem::path relative(name);
  const bool climbs = std::any_of(relative.begin(), relative.end(),
                                  [](const std::filesystem::path& part) { return part == ".."; });
  return !name.empty() && relative.is_relative() && !climbs && name.find('\0') == std::string::npos;
}

}  // namespace

WeightIndex parse_weight_index(std::string_view text, const std::string& file) {
  nlohmann::json root;
  try {
    root = fields::parse_bounded_json(text);
  } catch (const fields::JsonError& error) {
    refuse_index(fmt::format("{} is not valid: {}", file, error.what()));
  }
  const auto map = root.is_object() ? root.find("weight_map") : root.end();
  if (!root.is_object() || map == root.end() || !map->is_object() || map->empty()) {
    refuse_index(fmt::format("{} has no \"weight_map\" of tensor names to files", file));
  }
  WeightIndex files;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string()) {
      refuse_index(fmt::format("{}: the file of tensor \"{}\" is not a name", file, tensor));
    }
    const auto& name = shard.get_ref<const std::string&>();
    if (!is_inside(name)) {
      refuse_index(
          fmt::format("{}: the shard \"{}\" is not a name inside the directory", file, name));
    }
    files.emplace(tensor, name);
  }
  return files;
}

}  // namespace strait::store
