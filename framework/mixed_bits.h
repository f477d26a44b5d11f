#pragma once

#include <cstdint>

namespace strait {

// The output function of splitmix64: a bijection of 64 bits whose result looks random, the same on
// every machine.
constexpr std::uint64_t mixed_bits(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111eb;
  return value ^ (value >> 31U);
}

}  // namespace strait
