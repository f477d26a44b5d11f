// libFuzzer target: any bytes as what stages say to each other at the end of a step: a value or one
// MessageError, and what was read is written so that it reads back the same.
#include <cstdlib>

#include "stages/step_messages.h"

namespace {

template <class Read>
void read_twice(Read read, std::span<const std::byte> frame) {
  try {
    const auto first = to_frame(read(frame));
    if (to_frame(read(first)) != first || first.size() != frame.size()) std::abort();
  } catch (const strait::fields::MessageError& error) {
    if (*error.what() == '\0') std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> frame = std::as_bytes(std::span(data, size));
  read_twice(strait::stages::read_report, frame);
  read_twice(strait::stages::read_decision, frame);
  return 0;
}
