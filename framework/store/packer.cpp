#include "framework/store/packer.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <stdexcept>
#include <utility>

#include "framework/store/store_error.h"

namespace strait::store {

Packer::Packer(std::int64_t row_length, TooLong too_long) : too_long_(too_long) {
  if (row_length < 2) throw std::invalid_argument(fmt::format("rows of {} tokens", row_length));
  rows_.row_length = row_length;
}

void Packer::add(const Document& document) {
  if (document.is_target.size() != document.tokens.size()) {
    throw std::invalid_argument(fmt::format("{}: {} tokens, {} marks", document.origin,
                                            document.tokens.size(), document.is_target.size()));
  }
  const auto length = static_cast<std::size_t>(rows_.row_length);
  const std::size_t kept = kept_tokens(document);
  for (std::size_t from = 0; from < kept; from += length) {
    place(document, from, std::min(length, kept - from));
  }
}

std::size_t Packer::kept_tokens(const Document& document) {
  const std::size_t size = document.tokens.size();
  const auto length = static_cast<std::size_t>(rows_.row_length);
  if (!document.whole || size <= length) return size;
  switch (too_long_) {
    case TooLong::refuse:
      break;
    case TooLong::drop:
      ++long_documents_.dropped;
      return 0;
    case TooLong::truncate: {
      const auto marks = std::span(document.is_target).first(length);
      const bool learnable = std::ranges::find(marks, 1) != marks.end();
      ++(learnable ? long_documents_.truncated : long_documents_.dropped);
      return learnable ? length : 0;
    }
    case TooLong::split:
      ++long_documents_.split;
      return size;
  }
  throw StoreError(
      StoreError::Kind::bad_input,
      fmt::format("{}: the record has {} tokens, but a row has {}; make data.row longer, or set "
                  "data.too_long to \"drop\", \"truncate\" or \"split\" (only \"text\" records are "
                  "cut without being asked for)",
                  document.origin, size, length));
}

TokenRows Packer::finish() {
  TokenRows rows = std::move(rows_);
  rows_ =
      TokenRows{.row_length = rows.row_length, .input_ids = {}, .loss_mask = {}, .document = {}};
  open_.clear();
  return rows;
}

void Packer::place(const Document& document, std::size_t from, std::size_t count) {
  OpenRow& row = row_with_room(static_cast<std::int64_t>(count));
  const std::int64_t to = row.row * rows_.row_length + row.used;
  const auto first = static_cast<std::ptrdiff_t>(from);
  const auto size = static_cast<std::ptrdiff_t>(count);
  std::copy_n(document.tokens.begin() + first, size, rows_.input_ids.begin() + to);
  std::copy_n(document.is_target.begin() + first, size, rows_.loss_mask.begin() + to);
  std::fill_n(rows_.document.begin() + to, size, row.documents);
  row.used += size;
  ++row.documents;
  std::erase_if(open_, [this](const OpenRow& open) { return open.used == rows_.row_length; });
}

Packer::OpenRow& Packer::row_with_room(std::int64_t count) {
  for (OpenRow& open : open_) {
    if (open.used + count <= rows_.row_length) return open;
  }
  if (open_.size() == kLookBack) open_.pop_front();
  open_.push_back({rows_.rows(), 0, 0});
  const std::size_t size = rows_.input_ids.size() + static_cast<std::size_t>(rows_.row_length);
  rows_.input_ids.resize(size, 0);
  rows_.loss_mask.resize(size, 0);
  rows_.document.resize(size, -1);
  return open_.back();
}

}  // namespace strait::store
