// libFuzzer target: any bytes parse to a message or throw MessageError, and a message that was
// parsed formats to bytes that parse to the same message.
#include <cstdlib>

#include "launcher/hosts/transfer_peers.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace message = strait::transfer::message;
  try {
    const auto first =
        message::format(message::parse_message({reinterpret_cast<const std::byte*>(data), size}));
    if (message::format(message::parse_message(first)) != first) std::abort();
  } catch (const strait::base::MessageError&) {
    return 0;
  }
  return 0;
}
