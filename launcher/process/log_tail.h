#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace strait::process {

// The last `count` lines of a text file, oldest first, without control characters and cut at 400
// bytes each. Reads no more than the last 64 KiB. Empty when there is no such file.
std::vector<std::string> log_tail(const std::filesystem::path& file, std::size_t count);

}  // namespace strait::process
