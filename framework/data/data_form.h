#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace strait::data {

// The longest line of a JSONL file.
inline constexpr std::uint64_t kLongestLine = 16 << 20;

// How many bytes at the start of a file refuse_other_forms() needs, at most.
inline constexpr std::size_t kFormBytes = 64 << 10;

// Refuses a data file that is neither text nor JSONL, judged by its first bytes. The error says
// what the file looks like and ends with a command that converts it: token files under another
// name, archives, tables of columns, JSON arrays, tokenizers, JSONL that is named as text. `lines`:
// the file is to be read as JSONL. StoreError bad_input.
void refuse_other_forms(const std::filesystem::path& path, std::string_view head, bool lines);

// Whether a file's name says that it has records: lines of JSONL, or rows of a table.
bool has_records(const std::filesystem::path& path);
// The same of a table in columns, which is a Parquet file.
bool is_table(const std::filesystem::path& path);
void refuse_unless_table(const std::filesystem::path& path, std::string_view head);

// A note on a file that is read as one text, though its name says that it is a table. Ends with a
// command that writes its rows as records. Empty: it is no table.
std::string note_on_table(const std::filesystem::path& path);

// Refuses a text that is not UTF-8 or contains a byte 0: it is binary, or has another encoding.
// `text` starts at byte `offset` of the file.
void refuse_binary(const std::filesystem::path& path, std::string_view text, std::uint64_t offset);

// What to do about a line longer than kLongestLine that starts like this; ends with a command.
std::string advice_on_long_line(const std::filesystem::path& path, std::string_view line);

}  // namespace strait::data
