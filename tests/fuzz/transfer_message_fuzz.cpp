// libFuzzer target: any bytes as a frame between porters end in a message or in one MessageError,
// and a message that was read is written so that it reads back the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "launcher/transfer/transfer_message.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace ship = strait::transfer::ship;
  try {
    const auto first =
        ship::format(ship::parse_message({reinterpret_cast<const std::byte*>(data), size}));
    if (ship::format(ship::parse_message(first)) != first) std::abort();
  } catch (const ship::MessageError&) {
    return 0;
  }
  return 0;
}
