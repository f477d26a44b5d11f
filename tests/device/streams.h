#pragma once

#include <c10/core/Stream.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/device/memory.h"

namespace strait::test_device {

// A place in a stream: reached when that many of its items have run.
struct Ticket {
  c10::Stream stream;
  std::uint64_t number = 0;
  std::uint64_t run = 0;  // which begin() it was taken after; all former places are reached
};

// Where a stream waits for streams of other processes, or of other threads here, as a collective
// operation does: passed when so many places are known and reached, or when it is opened.
struct Gate {
  std::size_t expected = 0;
  std::vector<Ticket> places;
  bool open = false;
};

// Every stream of the test devices is a queue of work that was issued and has not run. Work runs in
// the order of its stream, on the thread that synchronises with it, under the lock of all streams;
// a seed decides which streams run ahead of that (all, some or none of their work, as soon as they
// may). Work knows memory by its address alone: what nothing keeps alive is poison by then. Any
// thread may call.
class Streams {
 public:
  using Work = std::function<void()>;

  static Streams& all();  // never destroyed

  // Runs everything that was issued. Then seed 0 has all streams run as late as possible, and the
  // wait with number `skipped`, counted from 0 (on events: streams' and the host's), is left out.
  void begin(std::uint64_t seed, std::int64_t skipped = -1);
  std::int64_t event_waits() const;  // since begin()

  c10::Stream make(c10::Device device);
  void issue(const c10::Stream& stream, Work work);
  Ticket last(const c10::Stream& stream) const;
  // `stream` goes on once the ticket is reached; the host, without a stream.
  void wait(const Ticket& ticket, const std::optional<c10::Stream>& stream);
  // The stream goes on past the gate. A wait for the stream meanwhile waits for the gate.
  void hold(const c10::Stream& stream, std::shared_ptr<Gate> gate);
  void add(Gate& gate, const Ticket& place);
  void open(Gate& gate);
  void finish(const Ticket& ticket);
  void finish(c10::Device device);
  bool query(const Ticket& ticket);  // lets something run, so that polling makes progress

  // For `stream`: a block that is released may be poison once that has come past what was issued.
  void* allocate(const c10::Stream& stream, std::size_t bytes);
  void record(const void* block, const c10::Stream& stream);
  void release(void* block);
  // Bytes of a device that are in use, and the most that were.
  std::pair<std::int64_t, std::int64_t> allocated(c10::DeviceIndex device) const;

 private:
  struct Item {
    Work work;
    std::optional<Ticket> awaited;
    std::shared_ptr<Gate> gate = nullptr;
  };
  struct Queue {
    std::deque<Item> items;
    std::uint64_t done = 0;
    int eagerness = 0;  // of two: 1 is by chance
  };
  using Key = std::pair<c10::DeviceIndex, c10::StreamId>;

  Queue& queue(const c10::Stream& stream) const;
  Ticket end(const c10::Stream& stream) const;
  void run_all(std::optional<c10::DeviceIndex> device);
  bool reached(const Ticket& ticket) const;
  bool passable(const Gate& gate) const;
  bool may_run(const Queue& of) const;
  void nudge(Queue& of);
  bool skip_wait();
  void run_first(Queue& of);
  void run_until(const Ticket& ticket);
  void run_ahead();
  void free_released();

  mutable std::mutex mutex_;
  std::condition_variable_any gates_changed_;
  mutable std::map<Key, Queue> queues_;
  Memory memory_;
  std::unordered_map<const void*, std::vector<c10::Stream>> users_;  // of blocks; the owner's first
  std::vector<std::pair<void*, std::vector<Ticket>>> released_;
  std::uint64_t seed_ = 0;
  mutable std::mt19937_64 chance_{0};
  std::int64_t event_waits_ = 0;
  std::int64_t skipped_ = -1;
  c10::StreamId made_ = 0;
  std::uint64_t run_ = 0;
};

}  // namespace strait::test_device
