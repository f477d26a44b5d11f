#include "framework/store/file_hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <new>

#include "framework/store/file_progress.h"
#include "framework/store/input_file.h"

namespace strait::store {

struct FileHash::State {
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> xxh{XXH3_createState()};
};

FileHash::FileHash() : state_(std::make_unique<State>()) {
  if (!state_->xxh) throw std::bad_alloc();
  XXH3_128bits_reset(state_->xxh.get());
}

FileHash::~FileHash() = default;

void FileHash::update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_->xxh.get(), bytes.data(), bytes.size());
}

std::string FileHash::hex() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_->xxh.get()));
  std::string text;
  for (const unsigned char byte : canonical.digest) text += fmt::format("{:02x}", byte);
  return text;
}

std::string hash_bytes(std::span<const std::byte> bytes) {
  FileHash hash;
  hash.update(bytes);
  return hash.hex();
}

std::string hash_text(const std::string& text) {
  return hash_bytes(std::as_bytes(std::span(text)));
}

FileSummary hash_file(const std::filesystem::path& path) {
  const InputFile file(path);
  FileHash hash;
  file.each_piece(0, file.size(), kFilePiece, [&](auto bytes) { hash.update(bytes); });
  return {file.size(), hash.hex()};
}

}  // namespace strait::store
