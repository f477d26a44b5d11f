#include "launcher/plugin/plugin_copy.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "framework/store/file_hash.h"
#include "launcher/plugin/plugin_file.h"
#include "launcher/user_error.h"

namespace strait::launcher {

std::vector<PluginCopy> plugin_copies(const std::vector<std::string>& files) {
  std::vector<PluginCopy> copies;
  copies.reserve(files.size());
  for (const std::string& file : files) copies.push_back({file, store::hash_file(file).hash});
  return copies;
}

void load_copies(const std::vector<PluginCopy>& copies) {
  for (const PluginCopy& copy : copies) {
    if (const std::string hash = store::hash_file(copy.file).hash; hash != copy.hash) {
      throw UserError(ExitCode::mismatch,
                      fmt::format("the plugin {} is not the launcher's: it has the hash {} here "
                                  "and {} there; give every host the same file",
                                  copy.file, hash, copy.hash));
    }
    load_plugin(copy.file);
  }
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

}  // namespace strait::launcher
