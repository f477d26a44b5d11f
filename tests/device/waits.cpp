#include "tests/device/waits.h"

#include <c10/util/Backtrace.h>
#include <c10/util/Exception.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

namespace strait::test_device {
namespace {

constexpr std::array<const char*, kWaits> kNames{
    "scalar", "copy to the host", "copy from the host", "shape", "stream", "event", "device"};

struct Counted {
  std::mutex mutex;
  bool on = false;
  bool places = false;
  std::array<std::int64_t, kWaits> counts{};
  std::vector<std::string> found;
};

Counted& counted() {
  static auto* const all = new Counted;  // streams are used until the very end of a process
  return *all;
}

}  // namespace

CountWaits::CountWaits(bool places) {
  const std::scoped_lock lock(counted().mutex);
  TORCH_INTERNAL_ASSERT(!counted().on, "waits are counted twice");
  counted().on = true;
  counted().places = places;
  counted().counts.fill(0);
  counted().found.clear();
}

CountWaits::~CountWaits() {
  const std::scoped_lock lock(counted().mutex);
  counted().on = false;
}

std::int64_t CountWaits::of(Wait wait) const {
  const std::scoped_lock lock(counted().mutex);
  return counted().counts.at(static_cast<std::size_t>(wait));
}

std::int64_t CountWaits::hidden() const {
  return of(Wait::scalar) + of(Wait::to_host) + of(Wait::from_host) + of(Wait::value_shape);
}

std::vector<std::string> CountWaits::places() const {
  const std::scoped_lock lock(counted().mutex);
  return counted().found;
}

void count_wait(Wait wait, const std::string& what) {
  static const bool kTrace = std::getenv("STRAIT_TEST_DEVICE_TRACE") != nullptr;
  const auto kind = static_cast<std::size_t>(wait);
  const std::scoped_lock lock(counted().mutex);
  const bool kept = counted().on && counted().places;
  std::string place;
  if (kTrace || kept) {
    place = "test device: " + what + " waits (" + kNames.at(kind) + ")\n" + c10::get_backtrace(1);
  }
  if (kTrace) std::fputs((place + "\n").c_str(), stderr);
  if (!counted().on) return;
  ++counted().counts.at(kind);
  if (kept) counted().found.push_back(std::move(place));
}

}  // namespace strait::test_device
