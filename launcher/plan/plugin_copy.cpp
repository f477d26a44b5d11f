#include "launcher/plan/plugin_copy.h"


#include <nlohmann/json.hpp>

#include "framework/store/file_hash.h"

namespace strait::plan {

std::vector<PluginCopy> plugin_copies(const std::vector<std::string>& files) {
  std::vector<PluginCopy> copies;
  copies.reserve(files.size());
  for (const std::string& file : files) copies.push_back({file, store::hash_file(file).hash});
  return copies;
}

nlohmann::json to_json(const std::vector<PluginCopy>& copies) {
  nlohmann::json array = nlohmann::json::array();
  for (const PluginCopy& copy : copies) array.push_back({copy.file, copy.hash});
  return array;
}

std::vector<PluginCopy> plugin_copies_from_json(const nlohmann::json& from) {
  std::vector<PluginCopy> copies;
  for (const nlohmann::json& copy : from) copies.push_back({copy.at(0), copy.at(1)});
  return copies;
}

}  // namespace strait::plan
