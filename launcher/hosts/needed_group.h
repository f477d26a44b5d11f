#pragma once

#include "launcher/hosts/chunk_table.h"

namespace strait::transfer {

// A file of this machine that processes on other hosts read, as a whole or in part.
struct NeededFile {
  std::filesystem::path from;
  std::string name;  // on the other host, within its group's folder
  bool whole = true;
  std::vector<ByteRange> ranges = {};  // unless `whole`
};

// Files that are used together: a host has all of them already, or it gets all of them.
struct NeededGroup {
  enum class Kind { train, eval, model, weights, adapter, reference, plugins, checkpoint };
  Kind kind = Kind::train;
  std::vector<NeededFile> files;
};

// The name of the plugin with this number on other hosts. The number keeps plugins with equal file
// names apart.
inline std::string delivered_plugin_name(std::size_t number, const std::filesystem::path& file) {
  return std::to_string(number) + "-" + file.filename().string();
}

}  // namespace strait::transfer
