#include "framework/codec/slot_store.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "framework/store/store_error.h"
#include "framework/tensors/disk_tensor.h"

namespace strait::codec {
namespace {

// A cache line, so that kernels read entries aligned.
constexpr std::size_t kSlotAlignment = 64;
// Few mappings, while a cache that is not full takes little more than its entries.
constexpr std::size_t kSlabBytes = std::size_t{64} << 20;

std::size_t rounded_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

std::size_t page_bytes() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

}  // namespace

SlotStore::SlotStore(SlotStoreOptions options) : options_(std::move(options)) {
  // A slot of 0 bytes would divide by zero below.
  if (options_.slot_bytes == 0) throw std::logic_error("a slot store with slots of 0 bytes");
  options_.slot_bytes = rounded_up(options_.slot_bytes, kSlotAlignment);
  memory_slots_ = static_cast<std::int64_t>(options_.memory_bytes / options_.slot_bytes);
  disk_slots_ = static_cast<std::int64_t>(options_.disk_bytes / options_.slot_bytes);
  slab_slots_ =
      static_cast<std::int64_t>(std::max<std::size_t>(kSlabBytes / options_.slot_bytes, 1));
  memory_slabs_ = static_cast<std::size_t>((memory_slots_ + slab_slots_ - 1) / slab_slots_);
}

SlotStore::Where SlotStore::where(std::int64_t slot) const {
  const bool disk = on_disk(slot);
  const std::int64_t in_part = disk ? slot - memory_slots_ : slot;
  return {(disk ? memory_slabs_ : 0) + static_cast<std::size_t>(in_part / slab_slots_),
          in_part % slab_slots_};
}

std::int64_t SlotStore::slots_of(std::size_t slab) const {
  const bool disk = slab >= memory_slabs_;
  const auto before = static_cast<std::int64_t>(disk ? slab - memory_slabs_ : slab) * slab_slots_;
  return std::min(slab_slots_, (disk ? disk_slots_ : memory_slots_) - before);
}

std::span<std::byte> SlotStore::open(std::int64_t slot) {
  if (slot < 0 || slot >= capacity()) {
    throw std::logic_error(fmt::format("slot {} of {} is opened", slot, capacity()));
  }
  const std::size_t slab = where(slot).slab;
  // Slots are opened in order, so a slab that is missing is the next one.
  if (slab == slabs_.size()) slabs_.push_back(make_slab(slab));
  return at(slot);
}

std::span<std::byte> SlotStore::at(std::int64_t slot) const {
  const Where place = where(slot);
  auto* slab = static_cast<std::byte*>(slabs_.at(place.slab).mutable_data_ptr());
  return {slab + static_cast<std::size_t>(place.row) * options_.slot_bytes, options_.slot_bytes};
}

void SlotStore::prefetch(std::int64_t slot) const {
  const std::span<std::byte> bytes = at(slot);
  // madvise() needs a page boundary. Slabs start at one, so rounding down stays in the slab.
  const std::size_t before = reinterpret_cast<std::uintptr_t>(bytes.data()) % page_bytes();
  ::madvise(bytes.data() - before, bytes.size() + before, MADV_WILLNEED);
}

std::vector<at::Tensor> SlotStore::slabs(std::int64_t slots) const {
  std::vector<at::Tensor> result;
  for (std::size_t slab = 0; slab < slabs_.size() && slots > 0; ++slab) {
    const std::int64_t here = std::min(slots, slots_of(slab));
    result.push_back(slabs_[slab].narrow(0, 0, here));
    slots -= here;
  }
  return result;
}

at::Tensor SlotStore::make_slab(std::size_t slab) const {
  const std::vector<std::int64_t> shape{slots_of(slab),
                                        static_cast<std::int64_t>(options_.slot_bytes)};
  if (slab >= memory_slabs_) {
    return tensors::disk_zeros(shape, at::kByte, options_.disk_file, options_.what);
  }
  // Pinned memory comes from libtorch, which has to register it with the driver.
  if (options_.pinned) {
    return at::zeros(shape, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  }
  const std::size_t bytes =
      rounded_up(static_cast<std::size_t>(shape[0]) * options_.slot_bytes, page_bytes());
  // Anonymous memory takes no room until a slot is written. at::zeros() would write all.
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    throw store::StoreError(
        store::StoreError::Kind::storage_full,
        fmt::format("{} cannot have {} bytes of memory: {}; give it less", options_.what, bytes,
                    std::generic_category().message(errno)));
  }
  return at::from_blob(
      mapped, shape, [bytes](void* address) { ::munmap(address, bytes); },
      at::TensorOptions().dtype(at::kByte));
}

}  // namespace strait::codec
