#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "framework/store/token_rows.h"

namespace strait::store {

// A record as tokens.
struct Document {
  std::string origin;  // for messages: "data/train.jsonl:17"
  std::vector<std::int32_t> tokens;
  std::vector<std::uint8_t> is_target;  // one for each token
  bool whole = false;                   // no plain text, which is cut where a row ends
};

// What becomes of a whole document that is longer than a row: an error, nothing, its first row of
// tokens, or row-long pieces.
enum class TooLong : std::uint8_t { refuse, drop, truncate, split };

// Whole documents that were longer than a row.
struct LongDocuments {
  std::int64_t dropped = 0;  // also those of which no target would be left
  std::int64_t truncated = 0;
  std::int64_t split = 0;
  bool operator==(const LongDocuments&) const = default;
};

// Puts documents into rows of one length, every token exactly once. A document longer than a row is
// cut into row-long pieces, or, if it is whole, treated as `too_long` says. Each piece goes into
// the first of the last kLookBack open rows that has room, else into a new one; so the result
// depends on the documents and their order only. Padding is token 0, mask 0, document -1. One
// thread.
class Packer {
 public:
  static constexpr std::size_t kLookBack = 64;

  explicit Packer(std::int64_t row_length, TooLong too_long = TooLong::refuse);  // two or more

  void add(const Document& document);  // StoreError bad_input: too long; names origin and lengths
  TokenRows finish();                  // the rows so far; the packer is empty again
  const LongDocuments& long_documents() const { return long_documents_; }

 private:
  struct OpenRow {
    std::int64_t row;
    std::int64_t used;
    std::int32_t documents;
  };
  void place(const Document& document, std::size_t from, std::size_t count);
  OpenRow& row_with_room(std::int64_t count);
  // How many of its tokens are placed.
  std::size_t kept_tokens(const Document& document);

  TooLong too_long_;
  LongDocuments long_documents_;
  TokenRows rows_;
  std::deque<OpenRow> open_;
};

}  // namespace strait::store
