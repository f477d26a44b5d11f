#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "framework/data/file_packer.h"
#include "framework/store/atomic_file.h"
#include "framework/store/store_error.h"

namespace strait::data {
namespace {

constexpr std::size_t kBytesOfToken = 9;  // of all three tables

}  // namespace

RowSpool::RowSpool(std::int64_t row_length, Folder folder, std::size_t memory)
    : find_folder_(std::move(folder)), memory_(memory) {
  held_.row_length = row_length;
}

void RowSpool::put(std::int64_t number, const PackedRow& row) {
  rows_ = std::max(rows_, number + 1);
  const auto length = static_cast<std::size_t>(held_.row_length);
  const auto end = static_cast<std::size_t>(rows_) * length;
  if (!files_[0].open() && end * kBytesOfToken > memory_) spill();
  if (files_[0].open()) {
    write(0, number, std::as_bytes(std::span(row.input_ids)));
    write(1, number, std::as_bytes(std::span(row.loss_mask)));
    write(2, number, std::as_bytes(std::span(row.document)));
    return;
  }
  if (held_.input_ids.size() < end) {
    held_.input_ids.resize(end);
    held_.loss_mask.resize(end);
    held_.document.resize(end);
  }
  const std::ptrdiff_t at = number * held_.row_length;
  std::ranges::copy(row.input_ids, held_.input_ids.begin() + at);
  std::ranges::copy(row.loss_mask, held_.loss_mask.begin() + at);
  std::ranges::copy(row.document, held_.document.begin() + at);
}

void RowSpool::spill() {
  folder_ = find_folder_();
  for (FileDescriptor& file : files_) file = store::unnamed_file(folder_ / ".rows");
  write(0, 0, std::as_bytes(std::span(held_.input_ids)));
  write(1, 0, std::as_bytes(std::span(held_.loss_mask)));
  write(2, 0, std::as_bytes(std::span(held_.document)));
  held_ =
      TokenRows{.row_length = held_.row_length, .input_ids = {}, .loss_mask = {}, .document = {}};
}

void RowSpool::write(std::size_t table, std::int64_t number, std::span<const std::byte> bytes) {
  const std::int64_t size_of_value = table == 1 ? 1 : 4;
  auto offset = static_cast<off_t>(number * held_.row_length * size_of_value);
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(files_[table].number(), bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      throw store::system_error("write rows of tokens (STRAIT_CACHE may name another directory) to",
                                folder_, errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += count;
  }
}

RowTables RowSpool::finish() {
  RowTables tables{.rows = std::exchange(rows_, 0), .row_length = held_.row_length};
  if (!files_[0].open()) {
    const auto held = std::make_shared<const TokenRows>(std::move(held_));
    tables.input_ids = held->input_ids;
    tables.loss_mask = held->loss_mask;
    tables.document = held->document;
    tables.memory = {held};
  } else {
    const auto size = static_cast<std::size_t>(tables.rows * tables.row_length);
    const auto map = [&](std::size_t table, std::size_t bytes) {
      tables.mappings.push_back(
          std::make_shared<const store::FileMapping>(files_[table], bytes, folder_));
      tables.memory.emplace_back(tables.mappings.back());
      return tables.mappings.back()->bytes().data();
    };
    tables.input_ids = {reinterpret_cast<const std::int32_t*>(map(0, size * 4)), size};
    tables.loss_mask = {reinterpret_cast<const std::uint8_t*>(map(1, size)), size};
    tables.document = {reinterpret_cast<const std::int32_t*>(map(2, size * 4)), size};
    for (FileDescriptor& file : files_) file = FileDescriptor();
  }
  held_ =
      TokenRows{.row_length = tables.row_length, .input_ids = {}, .loss_mask = {}, .document = {}};
  return tables;
}

}  // namespace strait::data
