#include "tests/gpu/emulation/emulated_gpu.h"

#include <cuda_runtime.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "tests/gpu/emulation/fiber.h"

uint3 threadIdx{};
uint3 blockIdx{};
dim3 blockDim{};
dim3 gridDim{};

namespace emulated {
namespace {

constexpr unsigned kLanes = 32;

std::uint32_t random_state = 1;
std::uint32_t draw(std::size_t below) {
  random_state ^= random_state << 13U;
  random_state ^= random_state >> 17U;
  random_state ^= random_state << 5U;
  return random_state % static_cast<std::uint32_t>(below);
}

struct Warp {
  WarpCall call = WarpCall::none;
  unsigned mask = 0;
  unsigned arrived = 0;
  unsigned ended = 0;
  std::uint32_t exchanges = 0;
  std::array<std::uint64_t, kLanes> incoming{};
  std::array<std::uint64_t, kLanes> outgoing{};
};

// A block that runs: its fibers, and who of them waits for what.
struct Block {
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<std::uint32_t> runnable;
  std::vector<Warp> warps;
  std::vector<std::uint32_t> at_barrier;
  std::uint32_t live = 0;
  std::uint32_t running = 0;
  bool newest_first = false;
  const std::function<void()>* thread = nullptr;
  unsigned char* shared = nullptr;
  Position position;
  std::vector<std::uint32_t> fences;
};
Block block;
Fiber main_fiber;

uint3 index_of(std::uint32_t thread) {
  return {thread % blockDim.x, thread / blockDim.x % blockDim.y, thread / blockDim.x / blockDim.y};
}

// Leaves the running fiber for one that can go on.
void run_another() {
  if (block.runnable.empty()) {
    fail(block.at_barrier.empty()
             ? "a warp waits for lanes that do not come"
             : "some threads wait at a barrier, and the others for lanes that do not come");
  }
  Fiber& from = *block.fibers[block.running];
  const std::size_t pick =
      block.newest_first ? block.runnable.size() - 1 : draw(block.runnable.size());
  const std::uint32_t next = block.runnable[pick];
  block.runnable[pick] = block.runnable.back();
  block.runnable.pop_back();
  const std::uint32_t me = std::exchange(block.running, next);
  threadIdx = index_of(next);
  block.position.thread = next;
  block.position.exchanges = block.warps[next / kLanes].exchanges;
  if (next == me) return;
  from.leave_for(*block.fibers[next]);
}

void open_barrier_if_complete() {
  if (block.at_barrier.size() < block.live || block.live == 0) return;
  ++block.position.barriers;
  block.runnable.insert(block.runnable.end(), block.at_barrier.begin(), block.at_barrier.end());
  block.at_barrier.clear();
}

void run_thread() {
  (*block.thread)();
  Warp& warp = block.warps[block.running / kLanes];
  warp.ended |= 1U << (block.running % kLanes);
  if ((warp.arrived & ~warp.ended) != 0 && (warp.mask & warp.ended) != 0) {
    fail("a lane ended while its warp waits for it");
  }
  --block.live;
  open_barrier_if_complete();
  if (block.live == 0) {
    block.fibers[block.running]->end_for(main_fiber);
  } else {
    const std::uint32_t ended = block.running;
    Fiber& from = *block.fibers[ended];
    if (block.runnable.empty()) fail("threads wait for lanes that have ended");
    const std::size_t pick = draw(block.runnable.size());
    block.running = block.runnable[pick];
    block.runnable[pick] = block.runnable.back();
    block.runnable.pop_back();
    threadIdx = index_of(block.running);
    block.position.thread = block.running;
    block.position.exchanges = block.warps[block.running / kLanes].exchanges;
    from.end_for(*block.fibers[block.running]);
  }
}

void run_block(const std::function<void()>& thread, std::size_t shared_bytes) {
  const std::uint32_t threads = blockDim.x * blockDim.y * blockDim.z;
  while (block.fibers.size() < threads) block.fibers.push_back(std::make_unique<Fiber>());
  block.warps.assign((threads + kLanes - 1) / kLanes, Warp{});
  block.live = threads;
  block.thread = &thread;
  block.newest_first = draw(2) == 0;
  block.position.barriers = 0;
  block.position.atomic_seen = false;
  block.shared = static_cast<unsigned char*>(allocate(shared_bytes, MemoryKind::shared));
  std::memset(block.shared, static_cast<int>(draw(256)), shared_bytes);
  block.runnable.clear();
  for (std::uint32_t t = 0; t < threads; ++t) {
    block.fibers[t]->start(&run_thread);
    block.runnable.push_back(t);
    std::swap(block.runnable.back(), block.runnable[draw(block.runnable.size())]);
  }
  block.running = block.runnable.back();
  block.runnable.pop_back();
  threadIdx = index_of(block.running);
  block.position.thread = block.running;
  block.position.exchanges = 0;
  main_fiber.leave_for(*block.fibers[block.running]);
  release(std::exchange(block.shared, nullptr));
}

}  // namespace

void fail(const char* text) {
  if (block.position.in_kernel) {
    std::printf("emulated GPU: %s (block %u,%u, thread %u,%u)\n", text, blockIdx.x, blockIdx.y,
                threadIdx.x, threadIdx.y);
  } else {
    std::printf("emulated GPU: %s (host)\n", text);
  }
  std::fflush(stdout);
  std::_Exit(3);
}

void set_seed(std::uint32_t seed) { random_state = seed * 2654435761U | 1U; }
const Position& position() { return block.position; }
unsigned char* shared_memory() { return block.shared; }

void run_grid(dim3 grid, dim3 size, std::size_t shared_bytes, const std::function<void()>& thread) {
  gridDim = grid;
  blockDim = size;
  const std::uint32_t blocks = grid.x * grid.y * grid.z;
  std::vector<std::uint32_t> order(blocks);
  for (std::uint32_t b = 0; b < blocks; ++b) {
    order[b] = b;
    std::swap(order[b], order[draw(b + 1)]);
  }
  Position& at = block.position;
  at.in_kernel = true;
  ++at.launch;
  at.threads = size.x * size.y * size.z;
  block.fences.assign(std::size_t{blocks} * at.threads, 0);
  at.fences = block.fences.data();
  for (const std::uint32_t b : order) {
    blockIdx = {b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y};
    at.block = b;
    run_block(thread, shared_bytes);
  }
  at.in_kernel = false;
}

std::uint64_t exchange(WarpCall call, unsigned mask, std::uint64_t mine, unsigned from_lane) {
  const std::uint32_t me = block.running;
  const unsigned lane = me % kLanes;
  Warp& warp = block.warps[me / kLanes];
  if ((mask >> lane & 1U) == 0) fail("a lane calls with a mask that leaves it out");
  if ((mask & warp.ended) != 0) fail("a mask names lanes that have ended");
  if (warp.arrived != 0 && (warp.call != call || warp.mask != mask)) {
    fail("lanes of a warp are at different operations, or give different masks");
  }
  warp.call = call;
  warp.mask = mask;
  warp.arrived |= 1U << lane;
  warp.incoming[lane] = mine;
  if (warp.arrived == mask) {
    warp.outgoing = warp.incoming;
    warp.arrived = 0;
    if (mask == 0xFFFFFFFFU) ++warp.exchanges;
    for (unsigned other = 0; other < kLanes; ++other) {
      if ((mask >> other & 1U) != 0) block.runnable.push_back(me - lane + other);
    }
  }
  run_another();
  return warp.outgoing[from_lane % kLanes];
}

unsigned ballot(unsigned mask, bool mine) {
  const unsigned lane = block.running % kLanes;
  exchange(WarpCall::ballot, mask, mine ? 1 : 0, lane);
  unsigned bits = 0;
  const Warp& warp = block.warps[block.running / kLanes];
  for (unsigned other = 0; other < kLanes; ++other) {
    if ((mask >> other & 1U) != 0 && warp.outgoing[other] != 0) bits |= 1U << other;
  }
  return bits;
}

void before_atomic(void* address, std::size_t size) {
  block.position.atomic_seen = true;
  note_atomic(address, size);
}

}  // namespace emulated

void __syncthreads() {
  emulated::block.at_barrier.push_back(emulated::block.running);
  emulated::open_barrier_if_complete();
  emulated::run_another();
}

void __threadfence() {
  const emulated::Position& at = emulated::block.position;
  ++at.fences[std::size_t{at.block} * at.threads + at.thread];
}
