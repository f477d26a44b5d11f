#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/store/manifest.h"
#include "framework/store/sample.h"
#include "launcher/base/errors.h"

// What is said about checkpoints, as parts of control_message.h.
namespace strait::control {

// ---- stage → coordinator

// This process's part of the checkpoint is durable under its name, as one of those who take part in
// this epoch.
struct ShardsWritten {
  store::Step step{};
  std::vector<store::ShardFile> files;
  std::uint32_t epoch = 0;
};

struct ShardFailed {
  store::Step step{};
  base::ExitCode code = base::ExitCode::storage_io;
  std::string text;
  std::uint32_t epoch = 0;
};

// ---- coordinator → stage

// Make a checkpoint behind the next step. Every wish has a higher number.
struct SaveSoon {
  std::uint32_t number = 0;
};

struct Committed {  // the checkpoint exists
  store::Step step{};
  std::uint32_t epoch = 0;  // of those who wrote it
  // A replica that takes part from here on, and the epoch of that.
  std::optional<std::uint32_t> arrives = {};
  std::optional<std::uint32_t> next_epoch = {};
};

struct Dropped {  // the checkpoint will never exist, older ones stay; training goes on
  store::Step step{};
  std::string text;
  bool again = false;  // it will: make it again, as those who take part now
  std::uint32_t epoch = 0;
};

}  // namespace strait::control
