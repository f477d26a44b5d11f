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

// Collects the rows of a token file. Up to `memory` bytes are held in memory; more go to unnamed
// files in `folder`, which vanish however the process ends. One thread.
class RowSpool {
 public:
  static constexpr std::size_t kMemory = std::size_t{64} << 20U;

  // `folder` is called when the rows exceed the memory.
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
  std::filesystem::path folder_;  // set when rows are spilled
  std::size_t memory_;
  std::int64_t rows_ = 0;
  TokenRows held_;
  std::array<FileDescriptor, 3> files_;  // one per table; open when rows are spilled
};

}  // namespace strait::data
