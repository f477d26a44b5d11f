#include "framework/tensors/snapshot.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace strait::tensors {
namespace {

using Clock = std::chrono::steady_clock;

// preserve_all() takes the lock for each piece anew, so that the reader gets its turn.
constexpr std::uint64_t kPreservedAtOnce = std::uint64_t{4} << 20U;

const std::byte* bytes_of(const at::Tensor& tensor) {
  return static_cast<const std::byte*>(tensor.const_data_ptr());
}

}  // namespace

void SnapshotMemory::abandon() {
  {
    const MutexLock lock(mutex_);
    abandoned_ = true;
  }
  changed_.notify_all();
}

double SnapshotMemory::waited_seconds() const {
  const MutexLock lock(mutex_);
  return waited_seconds_;
}

std::uint64_t SnapshotMemory::used() const {
  const MutexLock lock(mutex_);
  return used_;
}

Snapshot::Snapshot(std::vector<NamedTensor> tensors, std::shared_ptr<SnapshotMemory> memory)
    : memory_(std::move(memory)) {
  const MutexLock lock(memory_->mutex_);
  for (NamedTensor& named : tensors) {
    // A tensor that is contiguous on the CPU is not copied here: preserve() copies what changes
    // before it was read.
    at::Tensor plain = named.tensor.detach().to(at::kCPU).contiguous();
    const auto size = static_cast<std::uint64_t>(plain.nbytes());
    parts_.push_back({std::move(named.name), std::move(plain), size, 0, {}});
  }
}

Snapshot::~Snapshot() { close(); }

std::vector<TensorSource> Snapshot::sources(const std::string& prefix) {
  std::vector<TensorSource> sources;
  const MutexLock lock(memory_->mutex_);
  if (ended()) throw SnapshotClosed();
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    TensorSource& source = sources.emplace_back();
    source.name = prefix + part.name;
    source.type = part.tensor.scalar_type();
    source.shape = part.tensor.sizes().vec();
    source.copy = [this, i](std::uint64_t first, std::span<std::byte> target) {
      read(i, first, target);
    };
  }
  return sources;
}

void Snapshot::read(std::size_t tensor, std::uint64_t first, std::span<std::byte> target) {
  {
    const MutexLock lock(memory_->mutex_);
    if (ended()) throw SnapshotClosed();
    Part& part = parts_.at(tensor);
    // Only forwards: copies of what was read are freed and cannot be read again.
    if (first != part.read || first + target.size() > part.size) {
      throw std::logic_error(
          fmt::format("bytes {} to {} of {} are read where byte {} of {} follows", first,
                      first + target.size(), part.name, part.read, part.size));
    }
    // Copies and the unread rest alternate: what preserve() copied must come from the copy, since
    // the tensor has changed.
    std::byte* to = target.data();
    const std::uint64_t last = first + target.size();
    while (first < last) {
      const auto copy = part.copies.begin();
      const std::uint64_t begin = copy == part.copies.end() ? last : std::min(copy->first, last);
      if (first < begin) {
        std::memcpy(to, bytes_of(part.tensor) + first, begin - first);
        to += begin - first;
        first = begin;
        continue;
      }
      const std::uint64_t end = copy->first + copy->second.size;
      const std::uint64_t count = std::min(last, end) - first;
      std::memcpy(to, copy->second.bytes.get() + (first - copy->first), count);
      to += count;
      first += count;
      if (first < end) break;
      // Read copies are freed at once, so that a waiting preserve() gets their memory.
      memory_->used_ -= copy->second.size;
      part.copies.erase(copy);
    }
    part.read = last;
  }
  memory_->changed_.notify_all();
}

Snapshot::Range Snapshot::open_range(const Part& part, Range range) const {
  range.first = std::max(range.first, part.read);
  for (const auto& [first, copy] : part.copies) {
    if (first + copy.size <= range.first) continue;
    if (first > range.first) {
      range.last = std::min(range.last, first);
      break;
    }
    range.first = first + copy.size;
  }
  range.last = std::max(range.first, std::min(range.last, part.size));
  return range;
}

void Snapshot::preserve(std::size_t tensor, std::uint64_t first, std::uint64_t last) {
  const MutexLock lock(memory_->mutex_);
  while (!ended() && tensor < parts_.size()) {
    Part& part = parts_[tensor];
    const Range open = open_range(part, {first, last});
    const std::uint64_t size = open.last - open.first;
    if (size == 0) return;
    if (memory_->used_ + size > memory_->limit_) {
      const auto began = Clock::now();
      // The state may have changed completely meanwhile, so the loop starts over.
      memory_->changed_.wait(memory_->mutex_);
      const std::chrono::duration<double> waited = Clock::now() - began;
      memory_->waited_seconds_ += waited.count();
      continue;
    }
    Copy& copy = part.copies[open.first];
    copy.bytes = std::make_unique_for_overwrite<std::byte[]>(size);
    copy.size = size;
    std::memcpy(copy.bytes.get(), bytes_of(part.tensor) + open.first, size);
    memory_->used_ += size;
  }
}

void Snapshot::preserve_all() {
  std::vector<std::uint64_t> sizes;
  {
    const MutexLock lock(memory_->mutex_);
    for (const Part& part : parts_) sizes.push_back(part.size);
  }
  // The reader goes forward. Copying from the end leaves it the most to read from the tensors
  // themselves.
  for (std::size_t tensor = sizes.size(); tensor-- > 0;) {
    for (std::uint64_t last = sizes[tensor]; last > 0;) {
      const std::uint64_t first = (last - 1) / kPreservedAtOnce * kPreservedAtOnce;
      preserve(tensor, first, last);
      last = first;
    }
  }
}

void Snapshot::free_copies() {
  for (Part& part : parts_) {
    for (const auto& [first, copy] : part.copies) memory_->used_ -= copy.size;
    part.copies.clear();
    part.tensor.reset();
  }
}

void Snapshot::close() {
  {
    const MutexLock lock(memory_->mutex_);
    if (closed_) return;
    closed_ = true;
    free_copies();
  }
  memory_->changed_.notify_all();
}

bool Snapshot::closed() const {
  const MutexLock lock(memory_->mutex_);
  return ended();
}

}  // namespace strait::tensors
