#include "launcher/base/text.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

#include "framework/utf8.h"

namespace strait::base {
namespace {

unsigned byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

// C0 controls, DEL, and the C1 controls U+0080 to U+009F, which some terminals interpret too.
bool is_control(std::string_view character) {
  const unsigned first = byte_at(character, 0);
  return first < 0x20 || first == 0x7F || (first == 0xC2 && byte_at(character, 1) < 0xA0);
}

std::string without_controls(std::string_view text, std::string_view kept) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const std::string_view character = text.substr(0, length == 0 ? 1 : length);
    if (length == 0) {
      result += kReplacement;
    } else if (!is_control(character) || kept.find(character) != std::string_view::npos) {
      result += character;
    }
    text.remove_prefix(character.size());
  }
  return result;
}

// A longer text is not a mistyped key. The bound also limits the table of edit_distance().
constexpr std::size_t kLongestName = 64;

std::size_t edit_distance(std::string_view a, std::string_view b) {
  const std::size_t width = b.size() + 1;
  std::vector<std::size_t> cells((a.size() + 1) * width);
  for (std::size_t i = 0; i <= a.size(); ++i) {
    // The last rule counts a swap of adjacent letters as one edit: the most common slip of the
    // fingers.
    for (std::size_t j = 0; j <= b.size(); ++j) {
      auto& cell = cells[i * width + j];
      if (i == 0 || j == 0) {
        cell = i + j;
        continue;
      }
      const bool equal = a[i - 1] == b[j - 1];
      cell = std::min({cells[(i - 1) * width + j] + 1, cells[i * width + j - 1] + 1,
                       cells[(i - 1) * width + j - 1] + (equal ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cell = std::min(cell, cells[(i - 2) * width + j - 2] + 1);
      }
    }
  }
  return cells.back();
}

constexpr std::size_t kGap = 2;

std::size_t width_of(const TextColumn& column) {
  std::size_t width = columns_of(column.heading);
  for (const std::string& cell : column.cells) width = std::max(width, columns_of(cell));
  return width;
}

// `cell` is one of the column.
void append(std::string& line, const TextColumn& column, const std::string& cell) {
  const std::string blanks(width_of(column) - columns_of(cell), ' ');
  if (!line.empty()) line += std::string(kGap, ' ');
  line += column.kind == TextColumn::Kind::number ? blanks + cell : cell + blanks;
}

void append_part(std::vector<std::string>& lines, const std::vector<const TextColumn*>& part) {
  const auto add = [&](const auto& cell_of) {
    std::string line;
    for (const TextColumn* column : part) append(line, *column, cell_of(*column));
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(std::move(line));
  };
  add([](const TextColumn& column) -> const std::string& { return column.heading; });
  for (std::size_t row = 0; row < part.front()->cells.size(); ++row) {
    add([row](const TextColumn& column) -> const std::string& { return column.cells[row]; });
  }
}

}  // namespace

std::string byte_text(std::uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes < 1'000) return fmt::format("{} B", bytes);
  if (bytes < 1'000'000) return fmt::format("{:.1f} kB", value / 1e3);
  if (bytes < 1'000'000'000) return fmt::format("{:.1f} MB", value / 1e6);
  return fmt::format("{:.2f} GB", value / 1e9);
}

std::string counted(std::int64_t number, std::string_view noun, std::string_view plural) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : plural);
}

std::string printable(std::string_view line) { return without_controls(line, {}); }
std::string printable_lines(std::string_view lines) { return without_controls(lines, "\n\t"); }

std::string cut_to_columns(const std::string& text, std::size_t columns) {
  std::size_t used = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80U;
    if (begins && used++ == columns) return text.substr(0, i);
  }
  return text;
}

std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

std::string painted(const std::string& text, Tone tone, bool colors) {
  if (!colors || tone == Tone::plain || text.empty()) return text;
  const char* const code = tone == Tone::good      ? "32"
                           : tone == Tone::caution ? "33"
                           : tone == Tone::bad     ? "1;31"
                                                   : "2";
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

std::string_view nearest_name(std::string_view written, std::span<const std::string_view> known) {
  if (written.size() > kLongestName) {
    return {};
  }
  std::string_view best;
  // With more than a third of the letters wrong, a proposal would be a guess.
  std::size_t best_distance = std::max<std::size_t>(written.size() / 3, 1) + 1;
  for (const auto name : known) {
    const auto distance = edit_distance(written, name);
    if (distance < best_distance) {
      best = name;
      best_distance = distance;
    }
  }
  return best;
}

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

bool wants_colors(const std::string& choice) {
  if (choice != "auto") return choice == "always";
  const char* const refused = std::getenv("NO_COLOR");
  return is_live_terminal() && (refused == nullptr || *refused == '\0');
}

bool is_live_terminal() {
  const char* const name = std::getenv("TERM");
  return isatty(STDOUT_FILENO) != 0 && (name == nullptr || std::string_view(name) != "dumb");
}

std::size_t terminal_columns() {
  winsize size{};
  const bool known = isatty(STDOUT_FILENO) != 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
  return known ? size.ws_col : 0;
}

}  // namespace strait::base
