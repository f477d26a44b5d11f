#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "launcher/transfer/file_table.h"

namespace strait::transfer {

struct ByteRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;  // behind the last
};

struct PieceRun {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  bool operator==(const PieceRun&) const = default;
};

// Some of the pieces of a file.
class PieceSet {
 public:
  explicit PieceSet(std::uint32_t pieces = 0) : present_(pieces, false) {}
  static PieceSet all(std::uint32_t pieces);
  // Those that hold a byte of the ranges; what lies behind the file's end is nothing.
  static PieceSet holding(const FileTable& table, std::span<const ByteRange> ranges);

  std::uint32_t size() const { return static_cast<std::uint32_t>(present_.size()); }
  std::uint32_t count() const { return count_; }
  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == size(); }
  bool contains(std::uint32_t piece) const { return piece < size() && present_[piece]; }
  bool contains(const PieceSet& others) const;

  void insert(std::uint32_t piece);
  void erase(std::uint32_t piece);
  void insert(const PieceSet& others);
  void erase(const PieceSet& others);
  bool insert(std::span<const PieceRun> runs);  // false: one lies outside, and nothing was done

  std::vector<PieceRun> runs() const;
  std::uint64_t bytes(const FileTable& table) const;
  bool operator==(const PieceSet&) const = default;

 private:
  std::vector<bool> present_;
  std::uint32_t count_ = 0;
};

}  // namespace strait::transfer
