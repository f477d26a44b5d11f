#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace strait::data {

// A part of a record's text, and whether it is to be learnt.
struct Piece {
  std::string text;
  bool is_target = false;
  bool operator==(const Piece&) const = default;
};

// A training record before it is tokenized.
struct Record {
  std::string origin;  // "data/train.jsonl:17", for messages
  std::vector<Piece> pieces;
  bool whole = false;  // not plain text, which may be cut anywhere
  // For a chat: an object with "messages" and optionally "tools", for a chat template. JSON.
  std::string chat = {};
  // The part that only a chat template renders: "tools", "the role \"critic\" (message 2)". Empty:
  // the record can be rendered as "role: content".
  std::string needs_template = {};
  // For a text in parts: whether this is its first, and its last part.
  bool first = true;
  bool last = true;
  bool undesirable = false;  // its answer is to become less likely
};

// What is to be learnt: the answers (all of a plain text), everything, or the last answer.
enum class Targets : std::uint8_t { assistant, all, last };

// Parses a line of a JSONL file: an object with "text", or "prompt" and "completion", or "messages"
// (a list of {"role", "content"}), or a chat of another form (chat_record.h). Other keys are
// ignored, and so is a "prompt" next to "messages". A text is a target as a whole and may be cut;
// otherwise the completion or the assistant's turns are the target. The pieces of messages are
// "role: content\n". The newline after an assistant's content is a target too, because it ends the
// answer. Throws StoreError bad_input that starts with `origin`.
Record parse_record(std::string_view line, const std::string& origin);

// A longer text is read and tokenized in parts.
inline constexpr std::size_t kPartBytes = 1 << 20;

// The end of the part of `text` that starts at `from`: after a line end if there is one, and never
// inside a character.
std::size_t part_end(std::string_view text, std::size_t from);

// Whether a record belongs to the share (0 to 1) of records that is held out of training. It is a
// function of content and seed, so that equal records are all held out or none is. File, form
// (messages, ShareGPT or Alpaca), order of keys, white space and other keys do not matter.
bool is_held_out(const Record& record, double share, std::uint64_t seed);

// Changes which pieces are targets.
void choose_targets(Record& record, Targets targets);

// StoreError bad_input: "<origin>: <why>".
[[noreturn]] void refuse_record(const std::string& origin, const std::string& why);

// The JSON of a line of a data file, without keys whose value is null.
nlohmann::json parse_line(std::string_view line, const std::string& origin);

// The type of a value, in words for a sentence: "a number", "a list".
const char* kind_of(const nlohmann::json& value);

// The string under a key that a record must have.
std::string required_string(const nlohmann::json& object, const char* key,
                            const std::string& origin);

// Whether a label rates an answer: true, false, 1 or 0.
bool is_rating(const nlohmann::json& label);

}  // namespace strait::data
