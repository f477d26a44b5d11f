#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace strait::store {

// XXH3-128 of a stream of bytes, as 32 hexadecimal digits. Detects damage and identifies content;
// does not protect against forgery.
class FileHash {
 public:
  FileHash();
  ~FileHash();
  FileHash(const FileHash&) = delete;
  FileHash& operator=(const FileHash&) = delete;

  void update(std::span<const std::byte> bytes);
  std::string hex() const;  // of all bytes so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Identifies a file's content.
struct FileSummary {
  std::uint64_t size = 0;
  std::string hash;
  bool operator==(const FileSummary&) const = default;
};

std::string hash_bytes(std::span<const std::byte> bytes);
std::string hash_text(const std::string& text);
FileSummary hash_file(const std::filesystem::path& path);  // reads it in pieces

}  // namespace strait::store
