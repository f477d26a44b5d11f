#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>

#include "framework/data/packer.h"
#include "framework/data/token_rows.h"
#include "framework/file_descriptor.h"

namespace strait::data {

// Rows on their way to a token file. Up to `memory` bytes of them are held; more go to files
// without a name in `folder`, so that nothing is left of them however the process ends. One thread.
class RowSpool {
 public:
  static constexpr std::size_t kMemory = std::size_t{64} << 20U;

  // `folder` is called when there is more than memory holds.
  using Folder = std::function<std::filesystem::path()>;

  RowSpool(std::int64_t row_length, Folder folder, std::size_t memory = kMemory);

  // Each row once, in any order. StoreError: no room.
  void put(std::int64_t number, const PackedRow& row);

  // All rows; the spool is empty afterwards.
  RowTables finish();

 private:
  void spill();
  void write(std::size_t table, std::int64_t number, std::span<const std::byte> bytes);

  Folder find_folder_;
  std::filesystem::path folder_;  // once something is spilt
  std::size_t memory_;
  std::int64_t rows_ = 0;
  TokenRows held_;
  std::array<FileDescriptor, 3> files_;  // of the tables; open once something is spilt
};

}  // namespace strait::data
