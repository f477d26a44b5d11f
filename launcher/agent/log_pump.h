#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace strait::agent {

// Follows a file that somebody else writes to the end of.
class LogPump {
 public:
  // Begins behind what is there now.
  explicit LogPump(std::filesystem::path file);
  LogPump() = default;

  // What has come since, some KiB at most; empty: nothing, or the file cannot be read now.
  std::string take();

 private:
  std::filesystem::path file_;
  std::uint64_t taken_ = 0;
};

}  // namespace strait::agent
