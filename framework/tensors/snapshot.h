#pragma once

#include <exception>

#include "framework/mutex.h"
#include "framework/tensors/safetensors_writer.h"

namespace strait::tensors {

// Shared by several snapshots: a limit for their copies, and one lock.
class SnapshotMemory {
 public:
  explicit SnapshotMemory(std::uint64_t limit) : limit_(limit) {}

  // Permanent: snapshots no longer copy or wait, and their readers get SnapshotClosed. Must be
  // called before the end of threads that may wait in Snapshot::preserve().
  void abandon() STRAIT_EXCLUDES(mutex_);
  // How long preserve() has waited for readers so far.
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

// Thrown by reads of a snapshot that was given up.
class SnapshotClosed : public std::exception {
 public:
  const char* what() const noexcept override { return "the snapshot was given up"; }
};

// Tensors as they were at construction, for one thread that reads them while others change their
// memory. The reader reads the original memory. Before a range changes, preserve() copies the part
// that has not been read, or, if the limit does not allow the copy, waits until it is read. So
// nothing is copied that is read early enough.
//
// Threads: one reads. Any thread may call the other functions, and preserves a range before
// changing it.
class Snapshot {
 public:
  // Tensors that are not contiguous memory of this host are copied at once, in addition to the
  // limit. `memory` is shared with other snapshots.
  Snapshot(std::vector<NamedTensor> tensors, std::shared_ptr<SnapshotMemory> memory);
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // The tensors for write_safetensors(), with prefixed names. Each is read once, from start to end;
  // this object outlives them. Reading them in this order is fastest.
  std::vector<TensorSource> sources(const std::string& prefix = {});

  // Bytes [first, last) of a tensor are about to change. `tensor`: its index in the constructor's
  // list.
  void preserve(std::size_t tensor, std::uint64_t first, std::uint64_t last);
  // All tensors are about to change. Starts at the end, which is read last.
  void preserve_all();

  // Nothing more will be read: frees the copies and wakes waiting threads. Called when the reader
  // is done, and to stop it early (SnapshotClosed).
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
    std::uint64_t read = 0;                // bytes read so far
    std::map<std::uint64_t, Copy> copies;  // by first byte; disjoint and unread
  };
  struct Range {
    std::uint64_t first = 0;
    std::uint64_t last = 0;
  };

  void read(std::size_t tensor, std::uint64_t first, std::span<std::byte> target);
  // The first part of the range that is neither read nor copied; empty: none.
  Range open_range(const Part& part, Range range) const STRAIT_REQUIRES(memory_->mutex_);
  bool ended() const STRAIT_REQUIRES(memory_->mutex_) { return closed_ || memory_->abandoned_; }
  void free_copies() STRAIT_REQUIRES(memory_->mutex_);

  const std::shared_ptr<SnapshotMemory> memory_;
  std::vector<Part> parts_ STRAIT_GUARDED_BY(memory_->mutex_);
  bool closed_ STRAIT_GUARDED_BY(memory_->mutex_) = false;
};

}  // namespace strait::tensors
