#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launcher/transfer/chunk_set.h"

namespace strait::transfer {

// A file of this machine that processes elsewhere read, or parts of it.
struct NeededFile {
  std::filesystem::path from;
  std::string name;  // what it is called there, among others of its group
  bool whole = true;
  std::vector<ByteRange> ranges = {};  // else
};

// What the plugin of this number is called on other hosts.
std::string delivered_plugin_name(std::size_t number, const std::filesystem::path& file);

// Files that are of use together: a host has all of them already, or gets all.
struct NeededGroup {
  enum class Kind { train, eval, model, plugins, checkpoint };
  Kind kind = Kind::train;
  std::vector<NeededFile> files;
};

}  // namespace strait::transfer
