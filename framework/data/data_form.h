#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace strait::data {

// Of a line of a JSONL file.
inline constexpr std::uint64_t kLongestLine = 16 << 20;

// How many bytes of a file's beginning refuse_other_forms() looks at, at most.
inline constexpr std::size_t kFormBytes = 64 << 10;

// Refuses a data file that is neither text nor JSONL, by the first bytes of its content, and says
// what it looks like and, at the end, the command that makes one of it: token files under another
// name, archives, tables of columns, JSON arrays, tokenizers, JSONL that is named as text. `lines`:
// it is to be read as JSONL.
// StoreError bad_input.
void refuse_other_forms(const std::filesystem::path& path, std::string_view head, bool lines);

// Refuses a text that is not UTF-8, or has a byte 0: it is binary, or in another encoding. `text`
// begins at byte `offset` of the file.
void refuse_binary(const std::filesystem::path& path, std::string_view text, std::uint64_t offset);

// What to do about a line that is longer than kLongestLine, and begins so: ends with the command
// that does it.
std::string advice_on_long_line(const std::filesystem::path& path, std::string_view line);

}  // namespace strait::data
