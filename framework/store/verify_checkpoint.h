#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "framework/store/checkpoint.h"

namespace strait::store {

// What is wrong with a checkpoint, one entry for each damaged file, or tensor of it where the
// file with the hashes of its tensors is intact.
struct Damage {
  std::string file;
  std::string tensor;    // empty: outside of tensors, or in which one is not known
  std::string sentence;  // names both
};

struct Verification {
  std::uint64_t bytes = 0;             // read and found right
  std::vector<Damage> damage;          // empty: every byte that is here is right
  std::vector<std::string> elsewhere;  // files that do not have to be here, and are not
};

// Compares every byte of a committed checkpoint with the hashes in its manifest, in pieces, so that
// memory does not grow with it. Files of `here` have to be there; others may lie on other hosts.
// StoreError storage_io: the disk cannot be read now, which says nothing about the checkpoint.
Verification verify_checkpoint(const std::filesystem::path& checkpoint, Part here = Part::all);

}  // namespace strait::store
