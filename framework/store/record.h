#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace strait::store {

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
  bool whole = false;  // never cut: a prompt is nothing without its answer
};

// One line of a JSONL file, which is an object with "text", or "prompt" and "completion", or
// "messages" (a list of {"role", "content"}); further keys are left alone. A text is a target
// throughout and may be cut; of the others the completion, or the assistant's turns, are the
// target. Messages are rendered as "role: content\n"; the newline behind an assistant's content is
// a target too: there it stops. Throws StoreError bad_input that starts with `origin`.
Record parse_record(std::string_view line, const std::string& origin);

}  // namespace strait::store
