#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

namespace strait::data {

// The tokens of a record, or of a part of a text that is too long for memory.
struct Document {
  std::string origin;  // for messages: "data/train.jsonl:17"
  std::vector<std::int32_t> tokens;
  // One per token; 2: a target of an undesirable answer.
  std::vector<std::uint8_t> is_target;
  bool whole = false;      // not plain text, which may be cut where a row ends
  bool last = true;        // false: the next document continues this text
  std::size_t second = 0;  // where the rejected answer's document begins; 0: one document only
};

// What happens to a whole document longer than a row: it is refused, dropped, cut to its first row,
// or split into pieces as long as a row.
enum class TooLong : std::uint8_t { refuse, drop, truncate, split };

// Which row a piece goes to. first_fit: the first of the last kLookBack open rows with room.
// decreasing: pieces are gathered, and the longest is placed first. single: its own row.
enum class Packing : std::uint8_t { first_fit, decreasing, single };

struct PackOptions {
  std::int64_t row = 128;  // tokens; at least two
  TooLong too_long = TooLong::refuse;
  Packing packing = Packing::first_fit;
  // Tokens that a piece of a document repeats from the piece before it. They are not targets.
  std::int64_t overlap = 0;  // less than a row
  // What to do about a refused record; part of the error.
  std::string remedy =
      "make data.row longer, or set data.too_long to \"drop\", \"truncate\" or \"split\"";
};

// Counts whole documents longer than a row, and pieces of any document that were left out.
struct LongDocuments {
  std::int64_t dropped = 0;  // also documents that would have no target left
  std::int64_t truncated = 0;
  std::int64_t split = 0;
  std::int64_t pieces_without_target = 0;
  bool operator==(const LongDocuments&) const = default;
};

// A row that is being filled. Padding is token 0, mask 0, document -1.
struct PackedRow {
  std::vector<std::int32_t> input_ids;
  std::vector<std::uint8_t> loss_mask;
  std::vector<std::int32_t> document;
  std::int64_t used = 0;
  std::int32_t documents = 0;
};

// Puts documents into rows of one length, with every token exactly once (except for `overlap`). A
// document longer than a row is cut into pieces as long as a row, or, if it is whole, treated
// according to `too_long`. A piece without a target is left out, because a step might consist of
// its row only. The two documents of a preference stay together, one after the other, and both need
// a target. The rows depend only on the documents and their order. Memory is bounded by
// kLookBack rows or a window of kWindow tokens. One thread.
class Packer {
 public:
  static constexpr std::size_t kLookBack = 64;
  static constexpr std::size_t kWindow = std::size_t{8} << 20U;

  // Called once per complete row with its number; not in the order of numbers.
  using TakeRow = std::function<void(std::int64_t number, const PackedRow& row)>;

  Packer(PackOptions options, TakeRow take);

  void add(const Document& document);  // StoreError bad_input: too long; names origin and lengths
  void finish();                       // completes all rows
  std::int64_t rows() const { return rows_; }  // so far
  const LongDocuments& long_documents() const { return long_documents_; }

 private:
  // The tokens from `from` on. The first `context` of them are not targets.
  struct Piece {
    std::size_t from = 0;
    std::size_t count = 0;
    std::size_t context = 0;
    std::size_t second = 0;  // place in the piece where its second document begins; 0: none
  };
  struct OpenRow {
    std::int64_t number;
    PackedRow row;
  };
  void cut(const Document& document, std::size_t kept);
  void add_text(const Document& document);
  void place(const Document& document, const Piece& piece);
  static bool is_learnt(const Document& document, const Piece& piece);
  static void append(PackedRow& row, const Document& document, const Piece& piece);
  OpenRow& row_with_room(std::int64_t count);
  void gather(const Document& document, const Piece& piece);
  void place_gathered();
  // How many of its tokens are used.
  std::size_t kept_tokens(const Document& document);

  PackOptions options_;
  TakeRow take_;
  LongDocuments long_documents_;
  std::int64_t rows_ = 0;
  std::deque<OpenRow> open_;
  Document text_;         // the part of a text that is not placed yet
  bool in_text_ = false;  // more parts of the text follow
  bool is_cut_ = false;   // text_ starts with the end of the previous piece
  Document gathered_;     // the tokens of all pieces in `pieces_`
  std::vector<Piece> pieces_;
};

}  // namespace strait::data
