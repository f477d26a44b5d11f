// libFuzzer target: whatever the hashes of a checkpoint's tensors say, they are refused in one
// StoreError, or they read back equal.
#include <cstddef>
#include <cstdlib>

#include "framework/store/store_error.h"
#include "framework/store/tensor_hashes.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using strait::store::TensorHashes;
  try {
    const TensorHashes hashes =
        TensorHashes::parse({reinterpret_cast<const char*>(data), size}, "fuzz");
    if (TensorHashes::parse(hashes.format(), "again") != hashes) std::abort();
  } catch (const strait::store::StoreError&) {
    return 0;
  }
  return 0;
}
