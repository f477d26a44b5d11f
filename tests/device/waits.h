#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace strait::test_device {

// Where the host waits for a test device.
enum class Wait : std::uint8_t {
  scalar,       // a value of a tensor is read: item(), a condition
  to_host,      // a blocking copy, or one to memory that is not pinned
  from_host,    // a blocking copy to the device
  value_shape,  // the size of a result depends on values: unique, nonzero, a mask as index, equal
  stream,       // the three that are called by their names
  event,
  device,
};
inline constexpr std::size_t kWaits = 7;

// Waits of all threads while it lives. One lives at a time.
class CountWaits {
 public:
  // With `places`, the backtrace of each is kept.
  explicit CountWaits(bool places = false);
  CountWaits(const CountWaits&) = delete;
  CountWaits& operator=(const CountWaits&) = delete;
  ~CountWaits();

  std::int64_t of(Wait wait) const;
  // Those that do not look like waits: scalars, copies, shapes.
  std::int64_t hidden() const;
  std::vector<std::string> places() const;
};

// For the device itself. `what` is the operator. With STRAIT_TEST_DEVICE_TRACE in the environment a
// line and the backtrace go to stderr, too.
void count_wait(Wait wait, const std::string& what);

}  // namespace strait::test_device
