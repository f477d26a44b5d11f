#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace strait::control {

// What one process and the other replicas of its stage said to each other in one step.
struct SyncStep {
  std::string process;               // "1.0"
  std::uint64_t rounds = 0;          // that landed
  std::uint64_t sent_bytes = 0;      // as put on the wire, framing included
  std::uint64_t bfloat16_bytes = 0;  // that an all-reduce of the whole stage in bfloat16 would send
  double round_seconds = 0;          // from the opening of these rounds to their last byte
  double waited_seconds = 0;         // for them, instead of computing
  bool operator==(const SyncStep&) const = default;

  // How many times fewer bytes than that all-reduce; 1 where nothing was sent.
  double ratio() const {
    return sent_bytes == 0 ? 1
                           : static_cast<double>(bfloat16_bytes) / static_cast<double>(sent_bytes);
  }
};

// An element of `sync` in a line of metrics.jsonl.
nlohmann::ordered_json to_json(const SyncStep& step);
// json::exception where the object is no such element.
SyncStep sync_step_from(const nlohmann::json& object);

}  // namespace strait::control
