#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "framework/store/manifest.h"
#include "launcher/plan/plan.h"
#include "launcher/plugin/plugin_copy.h"
#include "launcher/ship/piece_set.h"

namespace strait::launcher {

// A file of this machine that processes elsewhere read, or parts of it.
struct NeededFile {
  std::filesystem::path from;
  std::string name;  // what it is called there, among others of its group
  bool whole = true;
  std::vector<ByteRange> ranges = {};  // else
};

// What the plugin of this number is called on other hosts.
std::string shipped_plugin(std::size_t number, const std::filesystem::path& file);

// Files that are of use together: a host has all of them already, or gets all.
struct NeededGroup {
  enum class Kind { train, eval, model, plugins, checkpoint };
  Kind kind = Kind::train;
  std::vector<NeededFile> files;
};

// What the processes on a host read before they begin: rows at the ends of a pipeline, of a model
// the tensors of their own layers, and plugins. StoreError, ConfigError, TensorMismatch.
std::vector<NeededGroup> needed_files(const Plan& plan, std::size_t host,
                                      const std::vector<PluginCopy>& plugins, bool weights);

// Of a complete checkpoint, whatever layout made it: its manifest, all shards' headers, the shards
// of the same processes, and of the others the tensors of own layers and those of no layer.
NeededGroup needed_checkpoint(const Plan& plan, std::size_t host,
                              const std::filesystem::path& checkpoint);

}  // namespace strait::launcher
