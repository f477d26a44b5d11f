#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace strait::codec {

struct SlotStoreOptions {
  std::size_t slot_bytes = 0;  // rounded up to a multiple of 64
  std::uint64_t memory_bytes = 0;
  std::uint64_t disk_bytes = 0;
  std::filesystem::path disk_file;            // its folder must exist
  bool pinned = false;                        // pin the slots in memory, for kernels of a device
  std::string what = "the activation cache";  // in messages
};

// Numbered slots of one size: the first ones in memory, the others on disk (tensors/disk_tensor.h).
// Both grow by slabs when a slot in them is first opened. Slots never move, and the store never
// shrinks.
//
// Threads: one at a time.
class SlotStore {
 public:
  explicit SlotStore(SlotStoreOptions options);

  std::int64_t capacity() const { return memory_slots_ + disk_slots_; }
  std::size_t slot_bytes() const { return options_.slot_bytes; }

  // Slots are opened in the order 0, 1, 2 and so on, and are zero until written. Throws StoreError
  // if there is no room.
  std::span<std::byte> open(std::int64_t slot);
  std::span<std::byte> at(std::int64_t slot) const;

  std::int64_t memory_slots() const { return memory_slots_; }
  bool on_disk(std::int64_t slot) const { return slot >= memory_slots_; }
  // Starts reading the slot's bytes into memory, without waiting.
  void prefetch(std::int64_t slot) const;

  // The slabs of the first `slots` slots, uint8 [slots of the slab, slot_bytes]; they share memory.
  std::vector<at::Tensor> slabs(std::int64_t slots) const;
  // The location of a slot in the slabs.
  struct Where {
    std::size_t slab;
    std::int64_t row;
  };
  Where where(std::int64_t slot) const;

 private:
  std::int64_t slots_of(std::size_t slab) const;
  at::Tensor make_slab(std::size_t slab) const;

  SlotStoreOptions options_;
  std::int64_t memory_slots_ = 0;
  std::int64_t disk_slots_ = 0;
  std::int64_t slab_slots_ = 1;
  std::size_t memory_slabs_ = 0;
  std::vector<at::Tensor> slabs_;
};

}  // namespace strait::codec
