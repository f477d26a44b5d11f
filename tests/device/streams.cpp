#include "tests/device/streams.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>

namespace strait::test_device {
namespace {

// A process that never waits shall not keep all of its work.
constexpr std::size_t kMostItems = 1 << 14;

std::int64_t number_in_environment(const char* name, std::int64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoll(text, nullptr, 10);
}

}  // namespace

Streams& Streams::all() {
  static auto* const streams = [] {
    auto* const made = new Streams;
    made->begin(static_cast<std::uint64_t>(number_in_environment("STRAIT_TEST_DEVICE_SEED", 0)),
                number_in_environment("STRAIT_TEST_DEVICE_SKIPPED_WAIT", -1));
    return made;
  }();
  return *streams;
}

void Streams::begin(std::uint64_t seed, std::int64_t skipped) {
  const std::scoped_lock lock(mutex_);
  run_all(std::nullopt);
  queues_.clear();
  ++run_;
  made_ = 0;
  seed_ = seed;
  chance_.seed(seed);
  event_waits_ = 0;
  skipped_ = skipped;
}

std::int64_t Streams::event_waits() const {
  const std::scoped_lock lock(mutex_);
  return event_waits_;
}

c10::Stream Streams::make(c10::Device device) {
  const std::scoped_lock lock(mutex_);
  return c10::Stream(c10::Stream::UNSAFE, device, ++made_);
}

void Streams::issue(const c10::Stream& stream, Work work) {
  const std::scoped_lock lock(mutex_);
  Queue& of = queue(stream);
  of.items.push_back({std::move(work), std::nullopt});
  if (of.items.size() > kMostItems) run_until({stream, of.done + 1, run_});
  run_ahead();
}

Ticket Streams::last(const c10::Stream& stream) const {
  const std::scoped_lock lock(mutex_);
  return end(stream);
}

void Streams::wait(const Ticket& ticket, const std::optional<c10::Stream>& stream) {
  const std::scoped_lock lock(mutex_);
  if (stream == ticket.stream || skip_wait()) return;
  if (stream) {
    queue(*stream).items.push_back({nullptr, ticket});
  } else {
    run_until(ticket);
  }
  run_ahead();
}

void Streams::hold(const c10::Stream& stream, std::shared_ptr<Gate> gate) {
  const std::scoped_lock lock(mutex_);
  queue(stream).items.push_back({nullptr, std::nullopt, std::move(gate)});
  run_ahead();
}

void Streams::add(Gate& gate, const Ticket& place) {
  const std::scoped_lock lock(mutex_);
  gate.places.push_back(place);
  run_ahead();
  gates_changed_.notify_all();
}

void Streams::open(Gate& gate) {
  const std::scoped_lock lock(mutex_);
  gate.open = true;
  gates_changed_.notify_all();
}

void Streams::finish(const Ticket& ticket) {
  const std::scoped_lock lock(mutex_);
  run_until(ticket);
  run_ahead();
}

void Streams::finish(c10::Device device) {
  const std::scoped_lock lock(mutex_);
  run_all(device.index());
}

bool Streams::query(const Ticket& ticket) {
  const std::scoped_lock lock(mutex_);
  if (!reached(ticket) && chance_() % 2 == 0) nudge(queue(ticket.stream));
  return reached(ticket);
}

void* Streams::allocate(const c10::Stream& stream, std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  void* const block = memory_.take(stream.device_index(), bytes);
  users_[block] = {stream};
  return block;
}

std::pair<std::int64_t, std::int64_t> Streams::allocated(c10::DeviceIndex device) const {
  const std::scoped_lock lock(mutex_);
  return memory_.taken(device);
}

void Streams::record(const void* block, const c10::Stream& stream) {
  const std::scoped_lock lock(mutex_);
  const auto found = users_.find(block);
  TORCH_INTERNAL_ASSERT(found != users_.end(), "record_stream of no block of the test device");
  found->second.push_back(stream);
}

void Streams::release(void* block) {
  const std::scoped_lock lock(mutex_);
  std::vector<Ticket> used;
  for (const c10::Stream& stream : users_.at(block)) used.push_back(end(stream));
  users_.erase(block);
  released_.emplace_back(block, std::move(used));
  free_released();
}

Streams::Queue& Streams::queue(const c10::Stream& stream) const {
  const auto [found, is_new] =
      queues_.try_emplace(Key(stream.device_index(), stream.id()), Queue());
  if (is_new && seed_ != 0) found->second.eagerness = static_cast<int>(chance_() % 3);
  return found->second;
}

Ticket Streams::end(const c10::Stream& stream) const {
  const Queue& of = queue(stream);
  return {stream, of.done + of.items.size(), run_};
}

void Streams::run_all(std::optional<c10::DeviceIndex> device) {
  for (auto& [key, of] : queues_) {
    if (device && key.first != *device) continue;
    const c10::Device where(c10::kPrivateUse1, key.first);
    run_until(end(c10::Stream(c10::Stream::UNSAFE, where, key.second)));
  }
}

bool Streams::reached(const Ticket& ticket) const {
  return ticket.run != run_ || queue(ticket.stream).done >= ticket.number;
}

bool Streams::passable(const Gate& gate) const {
  return gate.open ||
         (gate.places.size() == gate.expected &&
          std::ranges::all_of(gate.places, [this](const Ticket& place) { return reached(place); }));
}

bool Streams::may_run(const Queue& of) const {
  if (of.items.empty()) return false;
  const Item& first = of.items.front();
  return (!first.awaited || reached(*first.awaited)) && (!first.gate || passable(*first.gate));
}

// Lets one item run, of this queue or of what it waits for. Does not wait.
void Streams::nudge(Queue& of) {
  if (of.items.empty()) return;
  if (may_run(of)) return run_first(of);
  const Item& first = of.items.front();
  if (first.awaited) return nudge(queue(first.awaited->stream));
  const std::vector<Ticket> places = first.gate->places;
  for (const Ticket& place : places) {
    if (!reached(place)) nudge(queue(place.stream));
  }
}

bool Streams::skip_wait() { return event_waits_++ == skipped_; }

void Streams::run_first(Queue& of) {
  const Work work = std::move(of.items.front().work);
  of.items.pop_front();
  ++of.done;  // an operator that throws does so once
  if (work) {
    const Memory::Open opened(memory_);
    // Sets MKL's number of threads, which each thread has for itself: a product on a thread that
    // has not asked yet takes all cores, and may have other bits.
    at::get_num_threads();
    work();
  }
  free_released();
}

void Streams::run_until(const Ticket& ticket) {
  Queue& of = queue(ticket.stream);
  const Memory::Open opened(memory_);  // once for all of it
  while (!reached(ticket)) {
    const Item first{nullptr, of.items.front().awaited, of.items.front().gate};
    if (first.awaited && !reached(*first.awaited)) {
      run_until(*first.awaited);
    } else if (first.gate && !passable(*first.gate)) {
      for (const Ticket& place : std::vector<Ticket>(first.gate->places)) run_until(place);
      // Another thread gives what is missing. It may run this stream meanwhile, too.
      if (!passable(*first.gate)) gates_changed_.wait(mutex_);
    } else {
      run_first(of);
    }
  }
}

void Streams::run_ahead() {
  if (seed_ == 0) return;
  for (bool moved = true; moved;) {
    moved = false;
    for (auto& [key, of] : queues_) {
      const bool now = of.eagerness == 2 || (of.eagerness == 1 && chance_() % 2 == 0);
      if (!now || !may_run(of)) continue;
      run_first(of);
      moved = true;
    }
  }
}

void Streams::free_released() {
  std::erase_if(released_, [this](const auto& block) {
    if (!std::ranges::all_of(block.second, [this](const Ticket& at) { return reached(at); })) {
      return false;
    }
    memory_.give_back(block.first);
    return true;
  });
}

}  // namespace strait::test_device
