#pragma once

#include <c10/core/Device.h>

#include <array>
#include <cstddef>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

namespace strait::test_device {

// The memory of all test devices: one arena each, which no code of the host can touch but while an
// Open lives. A block that is taken or given back is filled with kPoison: NaN as floating point, -1
// as an integer. Not thread-safe: Streams has the lock.
class Memory {
 public:
  static constexpr int kPoison = 0xff;
  static constexpr std::size_t kMostDevices = 8;

  // Lets the host in. May nest.
  class Open {
   public:
    explicit Open(Memory& memory) : memory_(memory) { memory_.open(); }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;
    ~Open() { memory_.close(); }

   private:
    Memory& memory_;
  };

  void* take(c10::DeviceIndex device, std::size_t bytes);
  void give_back(void* block);
  std::pair<std::int64_t, std::int64_t> taken(c10::DeviceIndex device) const;  // now, at most

 private:
  struct Arena {
    std::byte* begin = nullptr;
    std::size_t used = 0;
    std::int64_t taken = 0;
    std::int64_t most_taken = 0;
    std::map<std::size_t, std::vector<void*>> free;  // by size
  };
  struct Block {
    c10::DeviceIndex device = 0;
    std::size_t size = 0;
  };

  void open();
  void close();
  void protect(int protection) const;
  void poison(void* block, std::size_t size);

  std::array<Arena, kMostDevices> arenas_;
  std::unordered_map<const void*, Block> blocks_;
  int depth_ = 0;
};

}  // namespace strait::test_device
