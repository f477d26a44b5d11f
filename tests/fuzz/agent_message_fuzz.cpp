// libFuzzer target: any bytes as what launcher and agents say to each other, the first byte
// choosing the reader: a message or one MessageError, and what was read is written so that it reads
// back the same. Replies are read as those that hold the most.
#include <cstdlib>

#include "launcher/hosts/agent_message.h"
#include "launcher/hosts/forwarding.h"

using namespace strait::hosts;

namespace {

template <typename Parse, typename Format>
void read_twice(Parse parse, Format format, std::span<const std::byte> frame) {
  try {
    const auto [number, message] = take_number(frame);
    const auto first = format(parse(message));
    if (format(parse(first)) != first) std::abort();
    if (take_number(with_number(number, first)).number != number) std::abort();
  } catch (const strait::base::MessageError&) {
    return;
  }
}

template <class Reply>
void read_reply_twice(std::span<const std::byte> frame) {
  read_twice(ReplyFrame<Reply>::parse, ReplyFrame<Reply>::format, frame);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span<const std::byte> frame(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  const auto format_any = [](const auto& message) { return format(message); };
  switch (data[0] % 6) {
    case 0:
      read_twice(parse_agent_message, format_any, frame);
      break;
    case 1:
      read_twice(parse_launcher_message, format_any, frame);
      break;
    case 2:
      read_reply_twice<PortOpened>(frame);
      break;
    case 3:
      read_reply_twice<ComputeMeasured>(frame);
      break;
    case 4:
      read_reply_twice<strait::transfer::ChunkTable>(frame);
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
