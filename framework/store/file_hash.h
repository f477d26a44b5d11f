#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace strait::store {

// XXH3-128 over a stream of bytes, as 32 hexadecimal digits. Finds damage and names content; it is
// no protection against content that is forged on purpose.
class FileHash {
 public:
  FileHash();
  ~FileHash();
  FileHash(const FileHash&) = delete;
  FileHash& operator=(const FileHash&) = delete;

  void update(std::span<const std::byte> bytes);
  std::string hex() const;  // of everything so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What a file is, without its name.
struct FileSummary {
  std::uint64_t size = 0;
  std::string hash;
  bool operator==(const FileSummary&) const = default;
};

std::string hash_bytes(std::span<const std::byte> bytes);
std::string hash_text(const std::string& text);
FileSummary hash_file(const std::filesystem::path& path);  // reads it in pieces

}  // namespace strait::store
