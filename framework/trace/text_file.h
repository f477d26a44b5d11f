#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace strait::trace {

// Whole text files. Readers of `path` see the old or the new content, never a part. Unlike a
// checkpoint, the file may be lost in a power failure. Both throw TraceError.
void replace_text(const std::filesystem::path& path, std::string_view text);

// Refuses a file above `most_bytes` before reading it.
std::string read_text(const std::filesystem::path& path, std::uintmax_t most_bytes);

}  // namespace strait::trace
