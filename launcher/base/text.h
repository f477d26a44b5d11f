#pragma once

#include <fmt/ranges.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "framework/shell_word.h"

namespace strait::base {

// Text for terminals, shells and error messages. All functions are pure.

// "980 B", "98.0 kB", "1.2 MB", "3.45 GB": decimal units.
std::string byte_text(std::uint64_t bytes);

// Forecasts and differences are signed; a negative number counts as 0.
template <std::signed_integral Bytes>
std::string byte_text(Bytes bytes) {
  return byte_text(bytes < 0 ? std::uint64_t{0} : static_cast<std::uint64_t>(bytes));
}

// "1 row", "2 rows", "2 micro-batches".
std::string counted(std::int64_t number, std::string_view noun, std::string_view plural = "s");

// One line without control characters, safe for a terminal: stage output, file contents and file
// names may contain escape sequences. Bytes that are not UTF-8 become U+FFFD.
std::string printable(std::string_view line);

// The same for several lines: line ends are kept.
std::string printable_lines(std::string_view lines);

// The first `columns` characters of UTF-8 text; a character counts as one column.
std::string cut_to_columns(const std::string& text, std::size_t columns);

// How wide UTF-8 text is: a character counts as one column.
std::size_t columns_of(std::string_view text);

// What a colour means. Where `colors` is false, the text stays as it is.
enum class Tone : std::uint8_t { plain, good, caution, bad, faint };
std::string painted(const std::string& text, Tone tone, bool colors);

constexpr bool is_ascii_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

using strait::shell_word;

// The known name with the least edit distance to `written` (a swap of adjacent letters counts as
// one edit); empty if more than a third of the letters differ.
std::string_view nearest_name(std::string_view written, std::span<const std::string_view> known);

// Tables for people.

struct TextColumn {
  enum class Kind { number, text, key };  // a key is a text that names the row

  std::string heading;
  std::vector<std::string> cells;  // as many in each column
  Kind kind = Kind::number;        // numbers are aligned right
};

// The lines of a table: headings, then the rows. Where it is wider than `columns` characters, the
// columns that do not fit follow below with the keys again; only a single column with its keys may
// be wider. 0: of any width. Pure.
std::vector<std::string> table_lines(const std::vector<TextColumn>& table, std::size_t columns = 0);

// The same, each line with two blanks before it and a line end.
std::string table_text(const std::vector<TextColumn>& table, std::size_t columns = 0);

// Whether what is printed has colours: `choice` is always, never or auto. auto: where stdout is a
// terminal, unless NO_COLOR is set or TERM is dumb.
bool wants_colors(const std::string& choice);

// Whether stdout is a terminal whose cursor can be moved.
bool is_live_terminal();

// Of the terminal that is stdout; 0: it is not one.
std::size_t terminal_columns();

}  // namespace strait::base
