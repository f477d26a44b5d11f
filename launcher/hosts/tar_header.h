#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace strait::hosts {

inline constexpr std::size_t kTarBlock = 512;

// What stands before a regular file in a tar archive (POSIX ustar), executable by everybody. After
// it come the bytes, filled up with zeros to whole blocks; two blocks of zeros end the archive. The
// name has at most 99 characters. Pure.
std::array<char, kTarBlock> tar_header(const std::string& name, std::uint64_t size);

// Zeros that fill the last block of so many bytes.
inline std::size_t tar_padding(std::uint64_t size) {
  return static_cast<std::size_t>((kTarBlock - size % kTarBlock) % kTarBlock);
}

}  // namespace strait::hosts
