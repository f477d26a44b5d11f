// What c10 asks of a device: devices, streams and events, memory, random numbers.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <cstdlib>
#include <map>
#include <mutex>

#include "tests/device/streams.h"
#include "tests/device/test_device.h"
#include "tests/device/waits.h"

namespace strait::test_device {
namespace {

c10::DeviceIndex& count_of_devices() {
  static c10::DeviceIndex count = [] {
    const char* const text = std::getenv("STRAIT_TEST_DEVICE_COUNT");
    return static_cast<c10::DeviceIndex>(text == nullptr ? 2 : std::strtol(text, nullptr, 10));
  }();
  return count;
}

thread_local c10::DeviceIndex current_device = 0;
thread_local std::array<c10::StreamId, Memory::kMostDevices> current_streams{};

// Of -1 the current one.
c10::Device checked(c10::Device device) {
  const c10::DeviceIndex index = device.index() < 0 ? current_device : device.index();
  TORCH_CHECK(index < count_of_devices(), "there is no device test:", static_cast<int>(index),
              "; this process has ", static_cast<int>(count_of_devices()));
  return {c10::DeviceType::PrivateUse1, index};
}

c10::Stream stream_of(c10::Device device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, device, id);
}

// ---- streams and events

constexpr std::int64_t kHandlesOfStream = 16;

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }
  c10::Device exchangeDevice(c10::Device to) const override {
    const c10::Device former = getDevice();
    setDevice(to);
    return former;
  }
  c10::Device getDevice() const override { return {type(), current_device}; }
  void setDevice(c10::Device to) const override { current_device = checked(to).index(); }
  void uncheckedSetDevice(c10::Device to) const noexcept override { current_device = to.index(); }
  c10::DeviceIndex deviceCount() const noexcept override { return count_of_devices(); }

  c10::Stream getStream(c10::Device of) const override {
    const c10::Device device = checked(of);
    return stream_of(device, current_streams.at(static_cast<std::size_t>(device.index())));
  }
  c10::Stream getDefaultStream(c10::Device of) const override { return stream_of(checked(of), 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device of, bool /*high*/) const override {
    return Streams::all().make(checked(of));
  }
  c10::Stream getNewStream(c10::Device of, int /*priority*/) const override {
    return Streams::all().make(checked(of));
  }
  c10::Stream exchangeStream(c10::Stream to) const override {
    const c10::Stream former = getStream(to.device());
    current_streams.at(static_cast<std::size_t>(to.device_index())) = to.id();
    return former;
  }
  // Device and number of the stream; nothing is there.
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return reinterpret_cast<void*>(
        static_cast<std::uintptr_t>(stream.id() * kHandlesOfStream + stream.device_index() + 1));
  }
  bool queryStream(const c10::Stream& stream) const override {
    return Streams::all().query(Streams::all().last(stream));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    count_wait(Wait::stream, "synchronizeStream");
    Streams::all().finish(Streams::all().last(stream));
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    count_wait(Wait::device, "synchronizeDevice");
    Streams::all().finish(c10::Device(type(), index));
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex /*index*/,
              const c10::EventFlag /*flag*/) const override {
    destroyEvent(*event, 0);
    *event = new Ticket(Streams::all().last(stream));
  }
  void destroyEvent(void* event, const c10::DeviceIndex /*index*/) const noexcept override {
    delete static_cast<Ticket*>(event);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) Streams::all().wait(*static_cast<Ticket*>(event), stream);
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || Streams::all().query(*static_cast<Ticket*>(event));
  }
  void synchronizeEvent(void* event) const override {
    count_wait(Wait::event, "synchronizeEvent");
    if (event != nullptr) Streams::all().wait(*static_cast<Ticket*>(event), std::nullopt);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    if (data.get() != nullptr) Streams::all().record(data.get(), stream);
  }
};

// ---- memory

void release_block(void* block) { Streams::all().release(block); }

class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t /*pool*/) override {}
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    if (data.get() != nullptr) Streams::all().record(data.get(), stream);
  }
  // Of bytes, which is what is asked for.
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    auto& bytes = stats.allocated_bytes[0];
    std::tie(bytes.current, bytes.peak) = Streams::all().allocated(device);
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex /*device*/) override {}
  void resetPeakStats(c10::DeviceIndex /*device*/) override {}
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device device = checked({c10::DeviceType::PrivateUse1, -1});
    if (bytes == 0) return {nullptr, device};
    void* const block = Streams::all().allocate(current_stream(device), bytes);
    return {block, block, &release_block, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_block; }
  void copy_data(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) const override {
    TORCH_CHECK(false, "the test device copies by its streams alone");
  }
};

struct Pinned {
  struct Block {
    std::size_t size = 0;
    int copies = 0;      // that were issued and have not run
    bool freed = false;  // by its owner
  };
  std::mutex mutex;
  std::map<const std::byte*, Block> blocks;
  // By size. Kept for ever, as CUDA does: of kernels it knows nothing, and one that is too late
  // writes there.
  std::multimap<std::size_t, std::byte*> unused;

  // With the mutex held; the block that the address is in, or the end.
  auto find(const void* address) {
    const auto* const at = static_cast<const std::byte*>(address);
    auto behind = blocks.upper_bound(at);
    if (behind == blocks.begin() || at >= (--behind)->first + behind->second.size)
      return blocks.end();
    return behind;
  }
  void give_back(std::map<const std::byte*, Block>::iterator block) {
    unused.emplace(block->second.size, const_cast<std::byte*>(block->first));
    blocks.erase(block);
  }
};

Pinned& pinned() {
  static auto* const all = new Pinned;
  return *all;
}

void free_pinned(void* block) {
  const std::scoped_lock lock(pinned().mutex);
  const auto found = pinned().blocks.find(static_cast<std::byte*>(block));
  if (found->second.copies > 0) {
    found->second.freed = true;
  } else {
    pinned().give_back(found);
  }
}

void end_copy(const void* address) {
  const std::scoped_lock lock(pinned().mutex);
  const auto found = pinned().find(address);
  if (--found->second.copies == 0 && found->second.freed) pinned().give_back(found);
}

bool is_pinned_address(const void* address) {
  const std::scoped_lock lock(pinned().mutex);
  return pinned().find(address) != pinned().blocks.end();
}

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    constexpr std::size_t kAlignment = 64;
    const std::size_t size = (bytes / kAlignment + 1) * kAlignment;
    const std::scoped_lock lock(pinned().mutex);
    const auto kept = pinned().unused.extract(size);
    void* const block = kept ? kept.mapped() : std::aligned_alloc(kAlignment, size);
    TORCH_CHECK(block != nullptr, "no memory to pin");
    std::memset(block, Memory::kPoison, size);
    pinned().blocks[static_cast<std::byte*>(block)].size = size;
    return {block, block, &free_pinned, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

// ---- random numbers: the CPU's, so that results can be held against it

class DeviceGenerator final : public c10::GeneratorImpl {
 public:
  DeviceGenerator(c10::DeviceIndex index, at::Generator host)
      : GeneratorImpl({c10::DeviceType::PrivateUse1, index},
                      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        host_(std::move(host)) {}

  void set_current_seed(std::uint64_t seed) override { host_.set_current_seed(seed); }
  void set_offset(std::uint64_t offset) override { host_.set_offset(offset); }
  std::uint64_t get_offset() const override { return host_.get_offset(); }
  std::uint64_t current_seed() const override { return host_.current_seed(); }
  std::uint64_t seed() override { return host_.seed(); }
  void set_state(const c10::TensorImpl& state) override {
    host_.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return host_.unsafeGetGeneratorImpl()->get_state();
  }
  const at::Generator& host() const { return host_; }

 private:
  DeviceGenerator* clone_impl() const override {
    return new DeviceGenerator(device().index(), host_.clone());
  }

  at::Generator host_;
};

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*index*/) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return count_of_devices(); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device; }
  void setCurrentDevice(c10::DeviceIndex index) const override { current_device = index; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return std::exchange(current_device, index);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return std::exchange(current_device, index);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(checked({c10::DeviceType::PrivateUse1, index}).index());
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return getDefaultGenerator(index).clone();
  }
  bool isPinnedPtr(const void* data) const override { return is_pinned_address(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    static PinnedAllocator allocator;
    return &allocator;
  }
};

DeviceAllocator device_allocator;
REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, &device_allocator)
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

const bool kRegistered = [] {
  c10::register_privateuse1_backend("test");
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  // Its tensors are small, and autograd has a thread for each device: more would only spin.
  at::set_num_threads(1);
  return true;
}();

}  // namespace

void set_device_count(c10::DeviceIndex count) {
  TORCH_CHECK(count > 0 && static_cast<std::size_t>(count) <= Memory::kMostDevices);
  count_of_devices() = count;
}

c10::DeviceIndex device_count() { return count_of_devices(); }

c10::Stream current_stream(c10::Device device) {
  return c10::impl::getDeviceGuardImpl(c10::DeviceType::PrivateUse1)->getStream(device);
}

c10::Stream stream_of_handle(void* native_handle) {
  const auto handle = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(native_handle));
  TORCH_INTERNAL_ASSERT(handle > 0, "a launch on a stream of another device");
  return stream_of(
      {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(handle % kHandlesOfStream - 1)},
      handle / kHandlesOfStream);
}

const at::Generator& default_generator(c10::DeviceIndex index) {
  static const auto* const all = [] {
    auto* const made = new std::array<at::Generator, Memory::kMostDevices>;
    for (std::size_t i = 0; i < made->size(); ++i) {
      made->at(i) = at::make_generator<DeviceGenerator>(static_cast<c10::DeviceIndex>(i),
                                                        at::detail::createCPUGenerator());
    }
    return made;
  }();
  return all->at(static_cast<std::size_t>(index));
}

at::Generator host_generator(const at::Generator& of_device) {
  const auto* const impl = dynamic_cast<DeviceGenerator*>(of_device.unsafeGetGeneratorImpl());
  TORCH_CHECK(impl != nullptr, "a generator of ", of_device.device(), " for the test device");
  return impl->host();
}

std::shared_ptr<const void> begin_copy(const at::Tensor& tensor) {
  const void* const address = tensor.const_data_ptr();
  const std::scoped_lock lock(pinned().mutex);
  ++pinned().find(address)->second.copies;
  return {address, &end_copy};
}

bool is_pinned(const at::Tensor& tensor) { return is_pinned_address(tensor.const_data_ptr()); }

}  // namespace strait::test_device
