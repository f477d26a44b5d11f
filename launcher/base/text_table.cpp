#include "launcher/base/text_table.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace strait::base {
namespace {

constexpr std::size_t kGap = 2;

// A character counts as one column.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

std::size_t width_of(const TextColumn& column) {
  std::size_t width = width_of(column.heading);
  for (const std::string& cell : column.cells) width = std::max(width, width_of(cell));
  return width;
}

// `cell` is one of the column.
void append(std::string& line, const TextColumn& column, const std::string& cell) {
  const std::string blanks(width_of(column) - width_of(cell), ' ');
  if (!line.empty()) line += std::string(kGap, ' ');
  line += column.kind == TextColumn::Kind::number ? blanks + cell : cell + blanks;
}

void append_part(std::vector<std::string>& lines, const std::vector<const TextColumn*>& part) {
  std::string headings;
  for (const TextColumn* column : part) append(headings, *column, column->heading);
  lines.push_back(std::move(headings));
  for (std::size_t row = 0; row < part.front()->cells.size(); ++row) {
    std::string line;
    for (const TextColumn* column : part) append(line, *column, column->cells[row]);
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(std::move(line));
  }
}

}  // namespace

std::vector<std::string> table_lines(const std::vector<TextColumn>& table, std::size_t columns) {
  std::vector<const TextColumn*> keys;
  std::size_t key_width = 0;
  for (const TextColumn& column : table) {
    if (column.kind != TextColumn::Kind::key) continue;
    keys.push_back(&column);
    key_width += width_of(column) + kGap;
  }
  std::vector<std::string> lines;
  std::vector<const TextColumn*> part = keys;
  std::size_t width = key_width;
  for (const TextColumn& column : table) {
    if (column.kind == TextColumn::Kind::key) continue;
    const std::size_t own = width_of(column) + kGap;
    const bool is_full = columns > 0 && width + own > columns + kGap && part.size() > keys.size();
    if (is_full) {
      append_part(lines, part);
      part = keys;
      width = key_width;
    }
    part.push_back(&column);
    width += own;
  }
  if (!part.empty()) append_part(lines, part);
  return lines;
}

std::string table_text(const std::vector<TextColumn>& table, std::size_t columns) {
  const std::size_t inside = columns > kGap ? columns - kGap : columns;
  std::string text;
  for (const std::string& line : table_lines(table, inside)) text += fmt::format("  {}\n", line);
  return text;
}

std::size_t terminal_columns() {
  winsize size{};
  const bool known = isatty(STDOUT_FILENO) != 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
  return known ? size.ws_col : 0;
}

}  // namespace strait::base
