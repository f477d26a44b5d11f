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
  bool whole = false;                   // never cut
};

// Puts documents into rows of one length, every token exactly once. A document longer than a row is
// cut into row-long pieces, or, if it must stay whole, refused. Each piece goes into the first of
// the last kLookBack open rows that has room, else into a new one; so the result depends on the
// documents and their order only. Padding is token 0, mask 0, document -1. One thread.
class Packer {
 public:
  static constexpr std::size_t kLookBack = 64;

  explicit Packer(std::int64_t row_length);  // two or more

  void add(const Document& document);  // StoreError bad_input: too long; names origin and lengths
  TokenRows finish();                  // the rows so far; the packer is empty again

 private:
  struct OpenRow {
    std::int64_t row;
    std::int64_t used;
    std::int32_t documents;
  };
  void place(const Document& document, std::size_t from, std::size_t count);
  OpenRow& row_with_room(std::int64_t count);

  TokenRows rows_;
  std::deque<OpenRow> open_;
};

}  // namespace strait::store
