#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/store/manifest.h"
#include "framework/store/sample.h"
#include "launcher/base/errors.h"

// The messages about checkpoints; they belong to the variants in control_message.h.
namespace strait::run {

// ---- stage → coordinator

// This process's shards of the checkpoint are durable.
struct ShardsWritten {
  store::Step step{};
  std::vector<store::ShardFile> files;
  std::uint32_t epoch = 0;  // of the membership in which they were written
};

struct ShardFailed {
  store::Step step{};
  base::ExitCode code = base::ExitCode::storage_io;
  std::string text;
  std::uint32_t epoch = 0;
};

// A file of a checkpoint in memory (store::MemoryFile), open in the process under this number.
struct MemoryShard {
  store::ShardFile file;
  std::int32_t descriptor = -1;
};

// Every process sends one for each step of checkpoint.memory_every.
struct ShardsInMemory {
  store::Step step{};
  std::vector<MemoryShard> shards;
  std::string skipped = {};  // why there are none; empty: these are all
};

// ---- coordinator → stage

// Make a checkpoint after the next step.
struct SaveSoon {
  std::uint32_t number = 0;  // rises with every request
};

// The checkpoint is complete.
struct Committed {
  store::Step step{};
  std::uint32_t epoch = 0;  // in which it was written
  // A replica that becomes a member at this checkpoint.
  std::optional<std::uint32_t> arrives = {};
  // The epoch of the membership with that replica.
  std::optional<std::uint32_t> next_epoch = {};
};

// The checkpoint failed. Older ones stay and training continues.
struct Dropped {
  store::Step step{};
  std::string text;
  bool again = false;       // write it again, with the current membership
  std::uint32_t epoch = 0;  // in which it was written
};

// The shards of this checkpoint in memory are no longer needed: others hold them, or it was given
// up.
struct MemoryReleased {
  store::Step step{};
};

}  // namespace strait::run
