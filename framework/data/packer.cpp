#include "framework/data/packer.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <span>
#include <stdexcept>

#include "framework/store/store_error.h"

namespace strait::data {
namespace {

PackedRow empty_row(std::int64_t length) {
  const auto size = static_cast<std::size_t>(length);
  return {std::vector<std::int32_t>(size, 0), std::vector<std::uint8_t>(size, 0),
          std::vector<std::int32_t>(size, -1)};
}

bool has_target(std::span<const std::uint8_t> marks) {
  return std::ranges::any_of(marks, [](std::uint8_t mark) { return mark != 0; });
}

// Rows of one length and the free room of each. A max tree finds the first row with enough room.
class RoomTree {
 public:
  RoomTree(std::size_t rows, std::int64_t room)
      : leaves_(std::bit_ceil(std::max<std::size_t>(rows, 1))), most_(2 * leaves_, room) {}

  // Takes `count` tokens of room, at most that of an empty row, and returns the row.
  std::size_t take(std::int64_t count) {
    std::size_t at = 1;
    while (at < leaves_) at = most_[2 * at] >= count ? 2 * at : 2 * at + 1;
    most_[at] -= count;
    const std::size_t row = at - leaves_;
    for (at /= 2; at > 0; at /= 2) most_[at] = std::max(most_[2 * at], most_[2 * at + 1]);
    return row;
  }

 private:
  std::size_t leaves_;
  std::vector<std::int64_t> most_;
};

}  // namespace

Packer::Packer(PackOptions options, TakeRow take)
    : options_(std::move(options)), take_(std::move(take)) {
  if (options_.row < 2 || options_.overlap < 0 || options_.overlap >= options_.row) {
    throw std::invalid_argument(
        fmt::format("rows of {} tokens that overlap by {}", options_.row, options_.overlap));
  }
}

void Packer::add(const Document& document) {
  if (document.is_target.size() != document.tokens.size()) {
    throw std::invalid_argument(fmt::format("{}: {} tokens, {} marks", document.origin,
                                            document.tokens.size(), document.is_target.size()));
  }
  if (in_text_ || !document.last) {
    add_text(document);
  } else {
    cut(document, kept_tokens(document));
  }
}

void Packer::cut(const Document& document, std::size_t kept) {
  const auto length = static_cast<std::size_t>(options_.row);
  const auto overlap = static_cast<std::size_t>(options_.overlap);
  for (std::size_t from = 0; from < kept; from += length - overlap) {
    const std::size_t count = std::min(length, kept - from);
    place(document, {from, count, from == 0 ? 0 : overlap, document.second});
    if (from + count == kept) break;
  }
}

// Gives the same pieces as if the text came at once: all but the last one are as long as a row.
void Packer::add_text(const Document& document) {
  text_.tokens.insert(text_.tokens.end(), document.tokens.begin(), document.tokens.end());
  text_.is_target.insert(text_.is_target.end(), document.is_target.begin(),
                         document.is_target.end());
  const auto length = static_cast<std::size_t>(options_.row);
  const auto overlap = static_cast<std::size_t>(options_.overlap);
  const std::size_t size = text_.tokens.size();
  std::size_t from = 0;
  // One more token is needed, or this piece may be the last one.
  for (; size - from > length; from += length - overlap) {
    place(text_, {from, length, is_cut_ ? overlap : 0});
    is_cut_ = true;
  }
  in_text_ = !document.last;
  if (document.last) {
    if (size > from) place(text_, {from, size - from, is_cut_ ? overlap : 0});
    is_cut_ = false;
    from = size;
  }
  const auto placed = static_cast<std::ptrdiff_t>(from);
  text_.tokens.erase(text_.tokens.begin(), text_.tokens.begin() + placed);
  text_.is_target.erase(text_.is_target.begin(), text_.is_target.begin() + placed);
}

std::size_t Packer::kept_tokens(const Document& document) {
  const std::size_t size = document.tokens.size();
  const auto length = static_cast<std::size_t>(options_.row);
  if (!document.whole || size <= length) return size;
  switch (options_.too_long) {
    case TooLong::refuse:
      break;
    case TooLong::drop:
      ++long_documents_.dropped;
      return 0;
    case TooLong::truncate: {
      const auto marks = std::span(document.is_target).first(length);
      const bool learnable = has_target(marks);
      ++(learnable ? long_documents_.truncated : long_documents_.dropped);
      return learnable ? length : 0;
    }
    case TooLong::split:
      ++long_documents_.split;
      return size;
  }
  throw store::StoreError(store::StoreError::Kind::bad_input,
                          "{}: the record has {} tokens, but a row has {}; {} (only \"text\" "
                          "records are cut without being asked for)",
                          document.origin, size, length, options_.remedy);
}

void Packer::finish() {
  if (!pieces_.empty()) place_gathered();
  for (const OpenRow& open : open_) take_(open.number, open.row);
  open_.clear();
}

void Packer::append(PackedRow& row, const Document& document, const Piece& piece) {
  const auto first = static_cast<std::ptrdiff_t>(piece.from);
  const auto size = static_cast<std::ptrdiff_t>(piece.count);
  const auto unlearnt = static_cast<std::ptrdiff_t>(piece.context);
  std::copy_n(document.tokens.begin() + first, size, row.input_ids.begin() + row.used);
  std::copy_n(document.is_target.begin() + first + unlearnt, size - unlearnt,
              row.loss_mask.begin() + row.used + unlearnt);
  const auto numbers = row.document.begin() + row.used;
  std::fill_n(numbers, size, row.documents++);
  if (piece.second > 0) {
    std::fill(numbers + static_cast<std::ptrdiff_t>(piece.second), numbers + size, row.documents++);
  }
  row.used += size;
}

// Nothing predicts the first token of a document, so it cannot be a target.
bool Packer::is_learnt(const Document& document, const Piece& piece) {
  const auto marks = std::span(document.is_target).subspan(piece.from, piece.count);
  const auto learnt = [&](std::size_t from, std::size_t to) {
    const auto part = marks.subspan(from, to - from);
    return has_target(part);
  };
  const std::size_t first = std::max<std::size_t>(piece.context, 1);
  if (piece.second == 0) return learnt(first, piece.count);
  return piece.second > 1 && learnt(first, piece.second) && piece.second + 1 < piece.count &&
         learnt(piece.second + 1, piece.count);
}

void Packer::place(const Document& document, const Piece& piece) {
  if (!is_learnt(document, piece)) {
    ++long_documents_.pieces_without_target;
    return;
  }
  if (options_.packing == Packing::decreasing) return gather(document, piece);
  if (options_.packing == Packing::single) {
    PackedRow row = empty_row(options_.row);
    append(row, document, piece);
    take_(rows_++, row);
    return;
  }
  OpenRow& open = row_with_room(static_cast<std::int64_t>(piece.count));
  append(open.row, document, piece);
  if (open.row.used < options_.row) return;
  take_(open.number, open.row);
  std::erase_if(open_, [&](const OpenRow& one) { return one.row.used == options_.row; });
}

Packer::OpenRow& Packer::row_with_room(std::int64_t count) {
  for (OpenRow& open : open_) {
    if (open.row.used + count <= options_.row) return open;
  }
  // The row that was opened first has had the most chances to be filled.
  if (open_.size() == kLookBack) {
    take_(open_.front().number, open_.front().row);
    open_.pop_front();
  }
  return open_.emplace_back(OpenRow{rows_++, empty_row(options_.row)});
}

void Packer::gather(const Document& document, const Piece& piece) {
  const auto first = static_cast<std::ptrdiff_t>(piece.from);
  const auto end = static_cast<std::ptrdiff_t>(piece.from + piece.count);
  pieces_.push_back({gathered_.tokens.size(), piece.count, piece.context, piece.second});
  gathered_.tokens.insert(gathered_.tokens.end(), document.tokens.begin() + first,
                          document.tokens.begin() + end);
  gathered_.is_target.insert(gathered_.is_target.end(), document.is_target.begin() + first,
                             document.is_target.begin() + end);
  if (gathered_.tokens.size() >= kWindow) place_gathered();
}

// First fit over all rows of the window, longest piece first. Rows, and the pieces in them, are
// then sorted back into the order of the file; otherwise, without shuffling, long pieces would all
// come first.
void Packer::place_gathered() {
  std::vector<std::size_t> order(pieces_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](std::size_t i) { return pieces_[i].count; });
  // At most one row per piece, so the tree always has room.
  RoomTree room(pieces_.size(), options_.row);
  std::vector<std::vector<std::size_t>> rows;
  for (const std::size_t i : order) {
    const std::size_t row = room.take(static_cast<std::int64_t>(pieces_[i].count));
    if (row == rows.size()) rows.emplace_back();
    rows[row].push_back(i);
  }
  for (std::vector<std::size_t>& row : rows) std::ranges::sort(row);
  std::ranges::sort(rows, {}, [](const std::vector<std::size_t>& row) { return row.front(); });
  for (const std::vector<std::size_t>& members : rows) {
    PackedRow row = empty_row(options_.row);
    for (const std::size_t i : members) {
      append(row, gathered_, pieces_[i]);
    }
    take_(rows_++, row);
  }
  gathered_ = {};
  pieces_.clear();
}

}  // namespace strait::data
