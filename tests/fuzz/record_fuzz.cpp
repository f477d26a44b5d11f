// libFuzzer target: whatever a line of a JSONL file holds, it is refused in one StoreError that
// starts with its place, or it becomes a record with text in it.
#include <cstdlib>

#include "framework/data/record.h"
#include "framework/store/store_error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  try {
    const strait::data::Record record = strait::data::parse_record(line, "f:1");
    if (record.pieces.empty() || record.origin != "f:1") std::abort();
  } catch (const strait::store::StoreError& error) {
    if (!std::string_view(error.what()).starts_with("f:1: ")) std::abort();
  }
  return 0;
}
