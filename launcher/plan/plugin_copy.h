#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace strait::plan {

// A plugin as it lies on some host, and what must be in it: every process of a run loads the same
// bytes as the launcher. Whoever ships it elsewhere changes `file` alone.
struct PluginCopy {
  std::string file;
  std::string hash;  // of its content
};

// Those of a recipe, as they lie here. StoreError where one cannot be read.
std::vector<PluginCopy> plugin_copies(const std::vector<std::string>& files);

nlohmann::json to_json(const std::vector<PluginCopy>& copies);
// nlohmann::json::exception where it is none.
std::vector<PluginCopy> plugin_copies_from_json(const nlohmann::json& from);

}  // namespace strait::plan
