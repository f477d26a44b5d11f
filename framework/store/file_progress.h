#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace strait::store {

// Files are read and written in pieces of at most this many bytes, and each is counted: a slow disk
// shows progress.
inline constexpr std::size_t kFilePiece = std::size_t{1} << 20U;

// Bytes that this process has read from and written to files of checkpoints, weights and data, as
// /proc/self/io counts them, and one for each call that makes them durable or puts a file in place:
// progress for the watchdog while nothing is computed. Any thread.
inline std::atomic<std::uint64_t>& file_progress() {
  static std::atomic<std::uint64_t> total{0};
  return total;
}

}  // namespace strait::store
