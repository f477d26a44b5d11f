#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "framework/mutex.h"
#include "framework/tensors/safetensors_writer.h"

namespace strait::tensors {

// What several snapshots share: a limit for their copies, and one lock.
class SnapshotMemory {
 public:
  explicit SnapshotMemory(std::uint64_t limit) : limit_(limit) {}

  // For good: snapshots neither copy nor wait any more, and their readers get SnapshotClosed.
  // Before the end of threads that may wait in Snapshot::preserve().
  void abandon() STRAIT_EXCLUDES(mutex_);
  // The time that preserve() has waited for readers so far.
  double waited_seconds() const STRAIT_EXCLUDES(mutex_);
  std::uint64_t used() const STRAIT_EXCLUDES(mutex_);  // bytes of copies

 private:
  friend class Snapshot;

  const std::uint64_t limit_;
  mutable Mutex mutex_;
  Condition changed_;
  std::uint64_t used_ STRAIT_GUARDED_BY(mutex_) = 0;
  bool abandoned_ STRAIT_GUARDED_BY(mutex_) = false;
  double waited_seconds_ STRAIT_GUARDED_BY(mutex_) = 0;
};

// Thrown by a read of a snapshot that was given up.
class SnapshotClosed : public std::exception {
 public:
  const char* what() const noexcept override { return "the snapshot was given up"; }
};

// Tensors as they were when this was constructed, for one thread that reads them while others go on
// to change their memory. The reader reads that memory itself. Before a range of it changes,
// preserve() copies what has not been read, or, where the limit does not allow the copy, waits
// until it has been read. So nothing is copied that is read early enough.
//
// Threads: one reads. Any may call the rest, and preserves a range before it changes it.
class Snapshot {
 public:
  // Tensors that are not plain memory of this host (another device, strides) are copied at once,
  // beside the limit. `memory` is shared with other snapshots.
  Snapshot(std::vector<NamedTensor> tensors, std::shared_ptr<SnapshotMemory> memory);
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // The tensors for write_safetensors(), names prefixed. They are read once, each from its begin to
  // its end; this object outlives them. For speed their order here is the order of reading.
  std::vector<TensorSource> sources(const std::string& prefix = {});

  // Bytes [first, last) of a tensor, by its index in the constructor's list, are about to change.
  void preserve(std::size_t tensor, std::uint64_t first, std::uint64_t last);
  // All of it is about to change. From the end, which is read last.
  void preserve_all();

  // Nothing more is read: the copies are freed, no thread waits. At the end of the reader, and to
  // end it early (SnapshotClosed).
  void close();
  bool closed() const;

 private:
  struct Copy {
    std::unique_ptr<std::byte[]> bytes;
    std::uint64_t size = 0;
  };
  struct Part {
    std::string name;
    at::Tensor tensor;
    std::uint64_t size = 0;
    std::uint64_t read = 0;                // bytes
    std::map<std::uint64_t, Copy> copies;  // by first byte; disjoint, none of them read
  };
  struct Range {
    std::uint64_t first = 0;
    std::uint64_t last = 0;
  };

  void read(std::size_t tensor, std::uint64_t first, std::span<std::byte> target);
  // The first part of the range that is neither read nor copied; empty: there is none.
  Range open_range(const Part& part, Range range) const STRAIT_REQUIRES(memory_->mutex_);
  bool ended() const STRAIT_REQUIRES(memory_->mutex_) { return closed_ || memory_->abandoned_; }
  void free_copies() STRAIT_REQUIRES(memory_->mutex_);

  const std::shared_ptr<SnapshotMemory> memory_;
  std::vector<Part> parts_ STRAIT_GUARDED_BY(memory_->mutex_);
  bool closed_ STRAIT_GUARDED_BY(memory_->mutex_) = false;
};

}  // namespace strait::tensors
