#include "framework/store/data_form.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "framework/store/store_error.h"
#include "framework/utf8.h"

namespace strait::store {
namespace {

using namespace std::string_view_literals;

// First bytes of files that people have, and what these are.
constexpr std::array kFirstBytes = {
    std::pair{"\x1f\x8b"sv, "a gzip archive; unpack it first"sv},
    std::pair{"PK\x03\x04"sv, "a zip archive; unpack it first"sv},
    std::pair{"\x28\xb5\x2f\xfd"sv, "a zstd archive; unpack it first"sv},
    std::pair{"\xfd"
              "7zXZ"sv,
              "an xz archive; unpack it first"sv},
    std::pair{"PAR1"sv, "a Parquet table; write it as JSONL first"sv},
    std::pair{"ARROW1"sv, "an Arrow table; write it as JSONL first"sv},
    std::pair{"\x93NUMPY"sv, "a NumPy array; write it as a token file (docs/data.md) first"sv},
    std::pair{"%PDF"sv, "a PDF; extract its text first"sv},
    std::pair{"\x89PNG"sv, "a picture"sv},
    std::pair{"\x7f"
              "ELF"sv,
              "a program"sv},
    std::pair{"SQLite format 3"sv, "a database; write its records as JSONL first"sv},
    std::pair{"\xff\xfe"sv, "text in UTF-16; convert it to UTF-8 first"sv},
    std::pair{"\xfe\xff"sv, "text in UTF-16; convert it to UTF-8 first"sv}};

[[noreturn]] void refuse_form(const std::filesystem::path& path, std::string_view looks) {
  throw StoreError(StoreError::Kind::bad_input,
                   fmt::format("{} looks like {}; data is text, JSONL with a record on each "
                               "line, or a token file named NAME.safetensors",
                               path.string(), looks));
}

bool is_safetensors(std::string_view head) {
  if (head.size() < 10 || head[8] != '{') return false;
  std::uint64_t header = 0;
  for (std::size_t i = 8; i-- > 0;) header = header << 8U | static_cast<unsigned char>(head[i]);
  return header >= 2 && header < 100'000'000;
}

std::string_view without_space(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first == text.npos ? std::string_view() : text.substr(first);
}

bool names_a_record(std::string_view line) {
  for (const char* key :
       {"\"text\"", "\"prompt\"", "\"messages\"", "\"conversations\"", "\"instruction\""}) {
    if (line.find(key) != line.npos) return true;
  }
  return false;
}

}  // namespace

void refuse_other_forms(const std::filesystem::path& path, std::string_view head, bool lines) {
  if (is_safetensors(head)) refuse_form(path, "a safetensors file (a token file needs that name)");
  for (const auto& [bytes, what] : kFirstBytes) {
    if (head.starts_with(bytes)) refuse_form(path, what);
  }
  if (head.find('\0') != head.npos) refuse_form(path, "a binary file: it has bytes 0");
  const std::string_view text =
      without_space(head.substr(head.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0));
  if (text.empty()) return;
  const bool named_json = path.extension() == ".json";
  const bool array =
      text[0] == '[' && (named_json || without_space(text.substr(1)).starts_with('{'));
  if (array) {
    refuse_form(path,
                "one JSON array; write each of its records on a line of its own, a text as "
                "{\"text\": ...}");
  }
  if (text[0] != '{') return;
  if (text.find("\"added_tokens\"") != text.npos && text.find("\"normalizer\"") != text.npos) {
    refuse_form(path, "a tokenizer.json; name its directory as data.tokenizer");
  }
  if (lines) return;
  const std::string_view line = text.substr(0, text.find('\n'));
  if (names_a_record(line) && line.find('}') != line.npos) {
    refuse_form(path, "JSONL; name it NAME.jsonl");
  }
  if (named_json) refuse_form(path, "one JSON object");
}

void refuse_binary(const std::filesystem::path& path, std::string_view text, std::uint64_t offset) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = text[at] == '\0' ? 0 : utf8_length(text.substr(at));
    if (size == 0) {
      refuse_form(path, fmt::format("a binary file, or text in another encoding than UTF-8 (byte "
                                    "{} of it)",
                                    offset + at + 1));
    }
    at += size;
  }
}

}  // namespace strait::store
