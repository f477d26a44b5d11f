// libFuzzer target: whatever a manifest says, it is refused in one StoreError, or it reads back
// equal. The hash that it carries of itself is made right first, or nothing would get past it.
#include <cstdlib>

#include "framework/store/file_hash.h"
#include "framework/store/manifest.h"
#include "framework/store/store_error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using strait::store::Manifest;
  const std::string key = "\n  \"check\": \"";
  std::string text = "{" + key + std::string(32, '0') + "\",";
  text.append(reinterpret_cast<const char*>(data), size);
  text.replace(1 + key.size(), 32, strait::store::hash_text(text));
  try {
    const Manifest manifest = Manifest::parse(text, "fuzz");
    if (Manifest::parse(manifest.format(), "again") != manifest) std::abort();
  } catch (const strait::store::StoreError&) {
    return 0;
  }
  return 0;
}
