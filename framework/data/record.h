#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strait::data {

// A stretch of a record's text that is, or is not, to be learnt.
struct Piece {
  std::string text;
  bool is_target = false;
  bool operator==(const Piece&) const = default;
};

// One training record before tokens.
struct Record {
  std::string origin;  // "data/train.jsonl:17", for messages
  std::vector<Piece> pieces;
  bool whole = false;  // no plain text, which may be cut anywhere
  // Of a chat: an object with "messages" and perhaps "tools", for a chat template. JSON.
  std::string chat = {};
  // What of it only a chat template renders: "tools", "the role \"critic\" (message 2)". Empty: it
  // can be rendered as "role: content".
  std::string needs_template = {};
  // Of a text in parts: whether this is its beginning, and its end.
  bool first = true;
  bool last = true;
};

// What of a record is to be learnt: its answers (of plain text all), everything, its last answer.
enum class Targets : std::uint8_t { assistant, all, last };

// One line of a JSONL file, which is an object with "text", or "prompt" and "completion", or
// "messages" (a list of {"role", "content"}), or a chat of the form of ShareGPT or Alpaca
// (chat_record.h); further keys are left alone. A text is a target throughout and may be cut; of
// the others the completion, or the assistant's turns, are the target. The pieces of messages are
// "role: content\n"; the newline behind an assistant's content is a target too: there it stops.
// Throws StoreError bad_input that starts with `origin`.
Record parse_record(std::string_view line, const std::string& origin);

// A longer text is read, and given to tokenizers, in parts.
inline constexpr std::size_t kPartBytes = 1 << 20;

// Where the part of `text` ends that begins at `from`: behind an end of line, if there is one, and
// never within a character.
std::size_t part_end(std::string_view text, std::size_t from);

// Whether a record is among the share (0 to 1) of all that is held out of training: a function of
// its content and the seed, so that equal records are all held out or none is, in whatever file,
// form (of messages, ShareGPT or Alpaca), order of keys and white space, and beside whatever other
// keys.
bool is_held_out(const Record& record, double share, std::uint64_t seed);

// Changes which pieces are targets.
void choose_targets(Record& record, Targets targets);

}  // namespace strait::data
