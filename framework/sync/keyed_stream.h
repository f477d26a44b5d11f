#pragma once

#include <cstdint>
#include <initializer_list>

namespace strait::sync {

// Random numbers as a function of what they are for: parts are mixed into a key, and the stream of
// that key is the same on every machine.
class KeyedStream {
 public:
  explicit KeyedStream(std::initializer_list<std::uint64_t> parts) {
    for (const std::uint64_t part : parts) state_ = mixed(state_ ^ mixed(part));
  }

  std::uint64_t next() { return mixed(state_ += 0x9e3779b97f4a7c15); }
  std::uint64_t below(std::uint64_t count) { return next() % count; }
  // From -1 to 1, in steps that a float holds.
  float centred() {
    return static_cast<float>(static_cast<std::int64_t>(next() >> 40U) - (1 << 23)) / (1 << 23);
  }

 private:
  // splitmix64's output function.
  static std::uint64_t mixed(std::uint64_t value) {
    value += 0x9e3779b97f4a7c15;
    value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9;
    value = (value ^ (value >> 27U)) * 0x94d049bb133111eb;
    return value ^ (value >> 31U);
  }

  std::uint64_t state_ = 0;
};

}  // namespace strait::sync
