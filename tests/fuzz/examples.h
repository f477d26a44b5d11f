#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

// libFuzzer's own mutation of an input.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

// Of a format so strict that chance finds no valid text: every 16th input is one of these examples,
// and goes into the corpus if it is new.
inline std::size_t mutate_or_begin_at(const std::vector<std::string>& examples, std::uint8_t* data,
                                      std::size_t size, std::size_t most, unsigned seed) {
  constexpr unsigned kBegins = 16;
  if (seed % kBegins != 0) return LLVMFuzzerMutate(data, size, most);
  const std::string& example = examples[seed / kBegins % examples.size()];
  const std::size_t length = std::min(example.size(), most);
  std::memcpy(data, example.data(), length);
  return length;
}
