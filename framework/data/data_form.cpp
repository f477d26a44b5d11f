#include "framework/data/data_form.h"

#include <array>
#include <system_error>

#include "framework/shell_word.h"
#include "framework/store/store_error.h"
#include "framework/utf8.h"

namespace strait::data {
namespace {

using namespace std::string_view_literals;

// What a file looks like, and what to do about it. In the command {0} is the file and {1} its path
// without the extension, each as a shell word.
struct OtherForm {
  std::string_view looks;
  std::string_view command = {};
  std::string_view remedy = "convert it with";
};

constexpr std::string_view kUnpack = "unpack it with";

constexpr std::string_view kParquet = "PAR1";

// The first bytes of common files.
constexpr std::array kFirstBytes = {
    std::pair{"\x1f\x8b"sv, OtherForm{"a gzip archive", "gunzip -c {0} > {1}", kUnpack}},
    std::pair{"PK\x03\x04"sv, OtherForm{"a zip archive", "unzip {0}", kUnpack}},
    std::pair{"\x28\xb5\x2f\xfd"sv, OtherForm{"a zstd archive", "zstd -dc {0} > {1}", kUnpack}},
    std::pair{"\xfd"
              "7zXZ"sv,
              OtherForm{"an xz archive", "xz -dc {0} > {1}", kUnpack}},
    std::pair{kParquet, OtherForm{"a Parquet table", "mv -n {0} {1}.parquet", "rename it with"}},
    std::pair{"ARROW1"sv, OtherForm{"an Arrow table; write its records as JSONL"}},
    std::pair{"GGUF"sv, OtherForm{"a GGUF model"}},
    std::pair{"\x93NUMPY"sv, OtherForm{"a NumPy array; write it as a token file (docs/data.md)"}},
    std::pair{"%PDF"sv, OtherForm{"a PDF", "pdftotext {0} {1}.txt", "extract its text with"}},
    std::pair{"\x89PNG"sv, OtherForm{"a picture"}},
    std::pair{"\x7f"
              "ELF"sv,
              OtherForm{"a program"}},
    std::pair{"SQLite format 3"sv, OtherForm{"a database; write its records as JSONL"}},
    std::pair{"\xff\xfe"sv,
              OtherForm{"text in UTF-16", "iconv -f UTF-16 -t UTF-8 {0} > {1}-utf8.txt"}},
    std::pair{"\xfe\xff"sv,
              OtherForm{"text in UTF-16", "iconv -f UTF-16 -t UTF-8 {0} > {1}-utf8.txt"}}};

constexpr OtherForm kArray = {
    "one JSON array",
    "python3 -c 'import json, sys; [print(json.dumps(r if isinstance(r, dict) else {{\"text\": "
    "r}})) for r in json.load(open(sys.argv[1], encoding=\"utf-8-sig\"))]' {0} > {1}.jsonl",
    "write a record on each line with"};

std::string without_ending(const std::filesystem::path& path) {
  return (path.parent_path() / path.stem()).string();
}

// The file's path without its ending, for a command that writes to it or to it with .jsonl. It must
// overwrite neither its input nor another file.
std::string free_target(const std::filesystem::path& path) {
  std::string target = without_ending(path);
  std::error_code none;
  for (const char* ending : {"", ".jsonl"}) {
    if (std::filesystem::exists(target + ending, none)) target += "-new";
  }
  return target;
}

[[noreturn]] void refuse_form(const std::filesystem::path& path, const OtherForm& form) {
  std::string advice;
  if (!form.command.empty()) {
    advice = fmt::format("; {}: {}", form.remedy,
                         fmt::format(fmt::runtime(form.command), shell_word(path.string()),
                                     shell_word(free_target(path))));
  }
  throw store::StoreError(
      store::StoreError::Kind::bad_input,
      "{} looks like {}; data is text, JSONL with a record on each line, Parquet, "
      "or a token file named NAME.safetensors{}",
      path.string(), form.looks, advice);
}

bool is_safetensors(std::string_view head) {
  // A safetensors file starts with the length of its JSON header, which is bounded by the format.
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
  if (is_safetensors(head)) {
    refuse_form(path,
                {"a safetensors file", "mv -n {0} {1}.safetensors", "a token file is renamed by"});
  }
  for (const auto& [bytes, form] : kFirstBytes) {
    if (head.starts_with(bytes)) refuse_form(path, form);
  }
  if (head.find('\0') != head.npos) refuse_form(path, {"a binary file: it has bytes 0"});
  const std::string_view text =
      without_space(head.substr(head.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0));
  if (text.empty()) return;
  const bool named_json = path.extension() == ".json";
  const bool array =
      text[0] == '[' && (named_json || without_space(text.substr(1)).starts_with('{'));
  if (array) refuse_form(path, kArray);
  if (text[0] != '{') return;
  if (text.find("\"added_tokens\"") != text.npos && text.find("\"normalizer\"") != text.npos) {
    refuse_form(path, {"a tokenizer.json; its directory is the tokenizer"});
  }
  if (lines) return;
  const std::string_view line = text.substr(0, text.find('\n'));
  if (names_a_record(line) && line.find('}') != line.npos) {
    refuse_form(path, {"JSONL", "mv -n {0} {1}.jsonl", "rename it with"});
  }
  if (named_json) refuse_form(path, {"one JSON object"});
}

bool is_table(const std::filesystem::path& path) { return path.extension() == ".parquet"; }

bool has_records(const std::filesystem::path& path) {
  return path.extension() == ".jsonl" || path.extension() == ".ndjson" || is_table(path);
}

void refuse_unless_table(const std::filesystem::path& path, std::string_view head) {
  if (head.starts_with(kParquet)) return;
  const bool pointer = head.starts_with("version https://git-lfs");
  throw store::StoreError(
      store::StoreError::Kind::bad_input, "{} is named as a Parquet file and {}; {}", path.string(),
      pointer ? "is only git's pointer to one" : "does not begin as one",
      pointer ? "get it with: git lfs pull" : "get it again, or give it the ending of what it is");
}

std::string note_on_table(const std::filesystem::path& path) {
  const bool tabs = path.extension() == ".tsv";
  if (!tabs && path.extension() != ".csv") return "";
  return fmt::format(
      "it is read as one text, with its separators; rows whose columns are named like keys of "
      "records (text, or prompt and completion) become records with: python3 -c 'import csv, json, "
      "sys; [print(json.dumps(r)) for r in csv.DictReader(open(sys.argv[1], "
      "encoding=\"utf-8-sig\", newline=\"\"){})]' {} > {}.jsonl",
      tabs ? ", delimiter=\"\\t\"" : "", shell_word(path.string()), shell_word(free_target(path)));
}

void refuse_binary(const std::filesystem::path& path, std::string_view text, std::uint64_t offset) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = text[at] == '\0' ? 0 : utf8_length(text.substr(at));
    if (size == 0) {
      const std::string looks = fmt::format(
          "a binary file, or text in another encoding than UTF-8 (byte {} of it)", offset + at + 1);
      refuse_form(path, {looks, "iconv -f LATIN1 -t UTF-8 {0} > {1}-utf8.txt",
                         "text in Latin-1 is converted with"});
    }
    at += size;
  }
}

std::string advice_on_long_line(const std::filesystem::path& path, std::string_view line) {
  const std::string file = shell_word(path.string());
  const std::string target = without_ending(path);
  const bool is_text = without_space(line).starts_with("{\"text\"");
  if (is_text) {
    return fmt::format(
        "cut the texts into records of a million characters with: python3 -c 'import json, sys; "
        "[print(json.dumps({{\"text\": t[i:i + 10**6]}})) for t in (json.loads(l)[\"text\"] for l "
        "in open(sys.argv[1], encoding=\"utf-8-sig\") if l.strip()) for i in range(0, len(t), "
        "10**6)]' {} > {}",
        file, shell_word(target + "-cut.jsonl"));
  }
  return fmt::format("leave such records out with: LC_ALL=C awk 'length <= {}' {} > {}",
                     kLongestLine, file, shell_word(target + "-short.jsonl"));
}

}  // namespace strait::data
