#pragma once

#include <algorithm>
#include <string>

#include "kernels/group_format.h"

// How boundaries are encoded: plain values without libtorch. Recipe, plan, job, stages and codecs
// share these structs. A new setting is added here, as a key in launcher/recipe/recipe_keys.cpp,
// and in the codec that reads it.
namespace strait::codec {

// Element type of the raw codec's messages.
enum class WireDtype : std::uint8_t { float32, bfloat16, float16 };

constexpr std::int64_t bytes_of(WireDtype dtype) { return dtype == WireDtype::float32 ? 4 : 2; }

// forward: activations, sent downstream; backward: gradients, sent upstream.
enum class Direction : std::uint8_t { forward, backward };

// The section [codec] of a recipe; fields are named like its keys. Each codec reads the fields that
// it uses.
struct CodecSettings {
  std::string forward = "raw";                        // of activations: a name of codec::codecs()
  std::int64_t forward_bits = 6;                      // fixed and delta; the minimum of auto
  std::int64_t first_bits = 8;                        // of rows that miss the cache; 16: bfloat16
  std::string backward = "raw";                       // of gradients
  std::int64_t backward_bits = 6;                     // fixed and delta; the minimum of auto
  WireDtype wire_dtype = WireDtype::float32;          // raw
  std::int64_t group = 64;                            // values that share a scale; fixed and delta
  std::int64_t cache = std::int64_t{4} << 30U;        // bytes of memory per process; delta
  std::int64_t cache_disk = std::int64_t{16} << 30U;  // bytes per process, in addition to memory
  // Percent of the loss that compression may cost; 0: what follows from the fields above. The plan
  // chooses codecs and bits in its place.
  double budget = 0;
  bool operator==(const CodecSettings&) const = default;

  const std::string& name(Direction direction) const {
    return direction == Direction::forward ? forward : backward;
  }
  int bits(Direction direction) const {
    return static_cast<int>(direction == Direction::forward ? forward_bits : backward_bits);
  }
};

// The share of one direction of one boundary in the activation cache of a process. Both ends have
// the same limits. Otherwise one end would evict rows while the other sends changes to them.
struct CacheLimits {
  std::int64_t entry_bytes = 0;   // of the longest row; 0: no cache
  std::int64_t memory_bytes = 0;  // at each end
  std::int64_t disk_bytes = 0;    // at each end, in addition to memory
  std::int64_t rows = 0;          // that fit into memory and disk
  bool operator==(const CacheLimits&) const = default;

  // Bytes of memory that the rows use.
  std::int64_t used_memory() const {
    return entry_bytes == 0 ? 0 : std::min(rows, memory_bytes / entry_bytes) * entry_bytes;
  }
};

}  // namespace strait::codec
