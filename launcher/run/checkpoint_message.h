#pragma once

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

// This process's shards of the checkpoint are in its host's memory (store::MemoryDirectory). Every
// process sends one for each step of checkpoint.memory_every.
struct ShardsInMemory {
  store::Step step{};
  std::vector<store::ShardFile> files = {};
  bool skipped = false;      // there are none
  std::string problem = {};  // a sentence: why, if that is not usual
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

// Whether the checkpoint in memory is complete. If it is given up, its shards are removed. The next
// one may begin.
struct MemoryDecided {
  store::Step step{};
  bool kept = false;
};

}  // namespace strait::run
