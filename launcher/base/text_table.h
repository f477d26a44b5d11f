#pragma once

#include <cstddef>
#include <string>
#include <vector>

// Tables for people.
namespace strait::base {

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

// Of the terminal that is stdout; 0: it is not one.
std::size_t terminal_columns();

}  // namespace strait::base
