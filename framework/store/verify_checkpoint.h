#pragma once

#include "framework/store/checkpoint.h"

namespace strait::store {

// Damage of a checkpoint: one entry per damaged file, or per damaged tensor if the file with the
// hashes of its tensors is intact.
struct Damage {
  std::string file;
  std::string tensor;    // empty: outside of tensors, or unknown
  std::string sentence;  // names file and tensor
};

struct Verification {
  std::uint64_t bytes = 0;             // read and correct
  std::vector<Damage> damage;          // empty: every byte that exists here is correct
  std::vector<std::string> elsewhere;  // files that may be missing here, and are
};

// Compares every byte of a committed checkpoint with the hashes in its manifest, in pieces, so that
// memory does not grow with it. Files of `here` must exist; others may be on other hosts.
// StoreError storage_io: the disk cannot be read now, which says nothing about the checkpoint.
Verification verify_checkpoint(const std::filesystem::path& checkpoint, Part here = Part::all);

}  // namespace strait::store
