#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace strait::stages {

// What this test program asked the system for in pieces of 4 KiB and more, on any thread, since the
// process began, by the library whose code asked: operator new and the C functions are watched.
// Where a sanitizer has taken their position there is nothing to see, and available() says so.
class LargeAllocations {
 public:
  static constexpr std::size_t kLarge = 4096;

  static bool available();
  static std::uint64_t count();
  // Of `since` and later; the names are those of files.
  static std::map<std::string, std::uint64_t> by_library(std::uint64_t since);
};

}  // namespace strait::stages
