#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace strait::store {

// Files are read and written in pieces of at most this size, and each piece is counted, so that a
// slow disk shows progress.
inline constexpr std::size_t kFilePiece = std::size_t{1} << 20U;

// Bytes that this process has read from and written to files of checkpoints, weights and data, as
// counted by /proc/self/io, plus one per call that makes a file durable or puts it in place. The
// watchdog takes it as progress while nothing is computed. Any thread.
inline std::atomic<std::uint64_t>& file_progress() {
  static std::atomic<std::uint64_t> total{0};
  return total;
}

}  // namespace strait::store
