#pragma once

#include <cstdint>
#include <initializer_list>

#include "framework/mixed_bits.h"

namespace strait::sync {

// Random numbers as a function of what they are for: parts are mixed into a key, and the stream of
// that key is the same on every machine.
class KeyedStream {
 public:
  explicit KeyedStream(std::initializer_list<std::uint64_t> parts) {
    for (const std::uint64_t part : parts) state_ = mixed_bits(state_ ^ mixed_bits(part));
  }

  std::uint64_t next() { return mixed_bits(state_ += 0x9e3779b97f4a7c15); }
  std::uint64_t below(std::uint64_t count) { return next() % count; }
  // From -1 to 1, in steps that a float holds.
  float centred() {
    return static_cast<float>(static_cast<std::int64_t>(next() >> 40U) - (1 << 23)) / (1 << 23);
  }

 private:
  std::uint64_t state_ = 0;
};

}  // namespace strait::sync
