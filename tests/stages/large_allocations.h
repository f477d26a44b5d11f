#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace strait::stages {

// Allocations of 4 KiB and more of this test program, on any thread, by calling library. Counts
// operator new and the C functions. With a sanitizer, which replaces them, available() is false.
class LargeAllocations {
 public:
  static constexpr std::size_t kLarge = 4096;

  static bool available();
  static std::uint64_t count();
  // Allocations since `since`; libraries by file name.
  static std::map<std::string, std::uint64_t> by_library(std::uint64_t since);
};

}  // namespace strait::stages
