#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

namespace strait::data {

// A record as tokens, or a part of a text that is too long for memory.
struct Document {
  std::string origin;  // for messages: "data/train.jsonl:17"
  std::vector<std::int32_t> tokens;
  std::vector<std::uint8_t> is_target;  // one for each token
  bool whole = false;                   // no plain text, which is cut where a row ends
  bool last = true;                     // false: the next document goes on with this text
};

// What becomes of a whole document that is longer than a row: an error, nothing, its first row of
// tokens, or row-long pieces.
enum class TooLong : std::uint8_t { refuse, drop, truncate, split };

// Into which row a piece goes. first_fit: the first of the last kLookBack open rows that has room.
// decreasing: pieces are gathered, and the longest placed first. single: a row of its own.
enum class Packing : std::uint8_t { first_fit, decreasing, single };

struct PackOptions {
  std::int64_t row = 128;  // tokens; two or more
  TooLong too_long = TooLong::refuse;
  Packing packing = Packing::first_fit;
  // Tokens that a further piece of a document repeats of the one before; they are no targets.
  std::int64_t overlap = 0;  // less than a row
  // What to do about a record that is refused, for the error.
  std::string remedy =
      "make data.row longer, or set data.too_long to \"drop\", \"truncate\" or \"split\"";
};

// Whole documents that were longer than a row, and pieces of any document that were left out.
struct LongDocuments {
  std::int64_t dropped = 0;  // also those of which no target would be left
  std::int64_t truncated = 0;
  std::int64_t split = 0;
  std::int64_t pieces_without_target = 0;
  bool operator==(const LongDocuments&) const = default;
};

// A row while it is filled. Padding is token 0, mask 0, document -1.
struct PackedRow {
  std::vector<std::int32_t> input_ids;
  std::vector<std::uint8_t> loss_mask;
  std::vector<std::int32_t> document;
  std::int64_t used = 0;
  std::int32_t documents = 0;
};

// Puts documents into rows of one length, every token exactly once (but for `overlap`). A document
// longer than a row is cut into row-long pieces, or, if it is whole, treated as `too_long` says.
// A piece from which nothing would be learnt is left out: a step may take its row alone.
// The rows depend on the documents and their order only. Memory is bounded by kLookBack rows or a
// window of kWindow tokens. One thread.
class Packer {
 public:
  static constexpr std::size_t kLookBack = 64;
  static constexpr std::size_t kWindow = std::size_t{8} << 20U;

  // Called once for each row that is complete, with its number; not in the order of numbers.
  using TakeRow = std::function<void(std::int64_t number, const PackedRow& row)>;

  Packer(PackOptions options, TakeRow take);

  void add(const Document& document);  // StoreError bad_input: too long; names origin and lengths
  void finish();                       // completes all rows
  std::int64_t rows() const { return rows_; }  // so far
  const LongDocuments& long_documents() const { return long_documents_; }

 private:
  // Tokens from `from` on; the first `context` are no targets.
  struct Piece {
    std::size_t from = 0;
    std::size_t count = 0;
    std::size_t context = 0;
  };
  struct OpenRow {
    std::int64_t number;
    PackedRow row;
  };
  void cut(const Document& document, std::size_t kept);
  void add_text(const Document& document);
  void place(const Document& document, const Piece& piece);
  OpenRow& row_with_room(std::int64_t count);
  void gather(const Document& document, const Piece& piece);
  void place_gathered();
  // How many of its tokens are placed.
  std::size_t kept_tokens(const Document& document);

  PackOptions options_;
  TakeRow take_;
  LongDocuments long_documents_;
  std::int64_t rows_ = 0;
  std::deque<OpenRow> open_;
  Document text_;         // of a text in parts what is not placed yet
  bool in_text_ = false;  // there are further parts
  bool is_cut_ = false;   // text_ begins with the end of the piece before
  Document gathered_;     // of all pieces in `pieces_`
  std::vector<Piece> pieces_;
};

}  // namespace strait::data
