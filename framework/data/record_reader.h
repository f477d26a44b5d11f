#pragma once

#include <array>

#include "framework/data/data_form.h"
#include "framework/data/record.h"
#include "framework/data/tokenizer.h"
#include "framework/store/input_file.h"

namespace strait::data {

// A prompt and an answer to it, as a line has them.
struct Answer {
  std::string origin;  // "data/train.jsonl:17", for messages
  const char* key = "completion";
  bool desirable = true;
  bool is_chat = false;  // prompt and answer are JSON lists of messages, not texts
  std::string prompt = {};
  std::string text = {};
  std::string shared = {};  // of a chat: JSON of its "system" and "tools"
};

// The answer to a prompt, perhaps to another one of the same form, as a record whose target is the
// answer. Throws StoreError bad_input that starts with the origin: of messages, one of the
// assistant's has to follow the prompt.
Record answer_record(const Answer& asked, const Answer& answered);

// Parses a line as TRL writes preferences, and returns the chosen answer, then the rejected one:
// "chosen" and "rejected", two texts or two lists of messages, perhaps after a "prompt" of the same
// form. Without such a prompt, what both begin with is the prompt. Both chats have the same
// "tools"; other keys are ignored. Throws StoreError bad_input that starts with `origin`.
std::array<Answer, 2> parse_preference(std::string_view line, const std::string& origin);

// The answers of a line that says which are desirable: of "prompt", "completion" and "label", or
// both answers of a preference.
std::vector<Answer> parse_rated(std::string_view line, const std::string& origin);

// The records of a data file, one by one. A file named .jsonl or .ndjson has one record per line,
// and blank lines are skipped. One named .parquet has one per row. Any other file is one text,
// which comes in parts. One thread. StoreError bad_input, with file:line: a file of another form
// (data_form.h), an empty file, one without records, or a line above the limit.
class RecordReader {
 public:
  static constexpr std::uint64_t kMaximumLine = kLongestLine;

  // With `preferences` each line is two records, the chosen answer and then the rejected one. With
  // `rated` each answer is two: the answer, and after it that of the nearest record before with
  // another prompt (at the start of the file: after it). `tables` opens a Parquet file.
  RecordReader(const std::filesystem::path& path, const TokenizerOpener& tables,
               bool preferences = false, bool rated = false);

  std::optional<Record> next();  // nothing: no more records

  std::uint64_t bytes() const { return file_.size(); }
  std::uint64_t bytes_read() const;
  bool is_text() const { return !lines_; }

 private:
  std::optional<Record> next_part();
  std::optional<std::string> next_line();
  // Makes the records of a line, if what they need was read.
  void parse_pairs(const std::string& line);
  void add_rated(const Answer& answer);
  void add_pair(const Record& first, const Record& second);
  std::optional<std::string> next_row();
  void fill();
  std::string origin() const;

  store::InputFile file_;
  bool lines_ = false;  // or rows of a table
  std::unique_ptr<TableReader> table_;
  bool preferences_ = false;
  bool rated_ = false;
  std::deque<Record> ready_;      // come next
  std::vector<Answer> unpaired_;  // the first ones, which all have one prompt
  std::optional<Answer> last_;    // before this record
  std::optional<Answer> other_;   // the last one before it with another prompt
  std::string buffer_;
  std::size_t position_ = 0;  // in buffer_
  std::uint64_t offset_ = 0;  // in the file, after buffer_
  std::int64_t line_ = 0;
  std::int64_t records_ = 0;
};

}  // namespace strait::data
