// libFuzzer target: whatever a model.safetensors.index.json says, it is refused in one StoreError,
// or every file that it names lies in the directory.
#include <cstdlib>

#include "framework/store/safetensors_header.h"
#include "framework/store/store_error.h"
#include "tests/fuzz/examples.h"

std::vector<std::string> examples() {
  return {
      R"({"metadata":{"total_size":8},"weight_map":{"a":"1.safetensors","b":"sub/2.safetensors"}})"};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::filesystem::path directory = "/models/m";
  const void* bytes = data;
  try {
    const auto index =
        strait::store::parse_weight_index({static_cast<const char*>(bytes), size}, "fuzz");
    if (index.empty()) std::abort();
    for (const auto& [tensor, file] : index) {
      const auto path = (directory / file).lexically_normal();
      if (*path.lexically_relative(directory).begin() == "..") std::abort();
    }
  } catch (const strait::store::StoreError& error) {
    if (*error.what() == '\0') std::abort();
  }
  return 0;
}
