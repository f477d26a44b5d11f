// libFuzzer target: any bytes as the first message of a group. What is not refused in a SyncError
// or MessageError is written to the same bytes again.
#include <algorithm>
#include <cstdlib>

#include "framework/fields/fields.h"
#include "framework/sync/replica_group.h"
#include "framework/sync/sync_error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  try {
    if (!std::ranges::equal(strait::sync::write_hello(strait::sync::read_hello(bytes)), bytes)) {
      std::abort();
    }
  } catch (const strait::sync::SyncError&) {
    return 0;
  } catch (const strait::fields::MessageError&) {
    return 0;
  }
  return 0;
}
