// libFuzzer target: any bytes as what launcher and agents say to each other, the first byte
// choosing the reader: a message or one MessageError, and what was read is written so that it reads
// back the same.
#include <cstdlib>

#include "launcher/hosts/agent_message.h"
#include "launcher/hosts/forwarding.h"

using namespace strait::hosts;

namespace {

template <typename Parse>
void read_twice(Parse parse, std::span<const std::byte> frame) {
  try {
    const auto message = parse(frame);
    const auto first = format(message.content, message.number);
    const auto again = parse(first);
    if (again.number != message.number || format(again.content, again.number) != first)
      std::abort();
  } catch (const strait::base::MessageError&) {
    return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span<const std::byte> frame(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      read_twice(parse_agent_message, frame);
      break;
    case 1:
      read_twice(parse_launcher_message, frame);
      break;
    default:
      if (const auto preamble = parse_preamble(frame)) {
        const PreambleBytes bytes = to_bytes(*preamble);
        const auto again = parse_preamble(bytes);
        if (!again || to_bytes(*again) != bytes) std::abort();
      }
  }
  return 0;
}
