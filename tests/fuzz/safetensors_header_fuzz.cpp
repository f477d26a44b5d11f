// libFuzzer target: whatever the header says, it is refused in one StoreError, or its tensors share
// out the data exactly and it is formatted so that it reads back equal.
#include <cstdlib>
#include <cstring>

#include "framework/store/safetensors_header.h"
#include "framework/store/store_error.h"

// The first two bytes are the length of the data, the rest is the header's text.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using strait::store::SafetensorsHeader;
  std::uint16_t data_bytes = 0;
  if (size < sizeof(data_bytes)) return 0;
  std::memcpy(&data_bytes, data, sizeof(data_bytes));
  const std::string_view text(reinterpret_cast<const char*>(data) + sizeof(data_bytes),
                              size - sizeof(data_bytes));
  try {
    const SafetensorsHeader header = SafetensorsHeader::parse(text, data_bytes, "fuzz");
    std::uint64_t covered = 0;
    for (const auto& info : header.tensors) {
      if (info.begin != covered || info.end < info.begin) std::abort();
      covered = info.end;
    }
    if (covered != data_bytes) std::abort();
    const auto again = SafetensorsHeader::parse(header.format().substr(8), data_bytes, "again");
    if (again.tensors != header.tensors || again.metadata != header.metadata) std::abort();
  } catch (const strait::store::StoreError&) {
    return 0;
  }
  return 0;
}
